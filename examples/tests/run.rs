//! Every example runs and finds what it asserts; those between processes under each launcher that is here. And the three
//! programs a stranger writes first stay short.

use std::process::Command;

#[test]
fn examples_run() {
    for example in [
        env!("CARGO_BIN_EXE_one_call"),
        env!("CARGO_BIN_EXE_window_transpose"),
        env!("CARGO_BIN_EXE_plan_kept"),
        env!("CARGO_BIN_EXE_triangle"),
        env!("CARGO_BIN_EXE_several_scaled"),
        env!("CARGO_BIN_EXE_mapped_file"),
        env!("CARGO_BIN_EXE_schedule_simulate"),
        env!("CARGO_BIN_EXE_ring"),
        env!("CARGO_BIN_EXE_threads_as_ranks"),
        env!("CARGO_BIN_EXE_gaussian"),
    ] {
        let output = Command::new(example).output().expect("it was built");
        assert!(output.status.success(), "{example}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn examples_run_between_processes() {
    let launchers =
        [("mpirun.openmpi", &["--allow-run-as-root", "--oversubscribe"][..]), ("mpirun.mpich", &[][..])];
    let is_here = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let here: Vec<_> = launchers.into_iter().filter(|(program, _)| is_here(program)).collect();
    assert!(!here.is_empty() || std::env::var_os("RESHARD_NEEDS_MPI").is_none(), "no MPI is installed");
    for (program, flags) in here {
        for (ranks, example) in
            [("8", env!("CARGO_BIN_EXE_mpi_start_test")), ("4", env!("CARGO_BIN_EXE_mpi_shared"))]
        {
            let output = Command::new(program).args(flags).args(["-n", ranks, example]).output();
            let output = output.expect("the launcher is here");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{program} {example}: {said}");
        }
    }
}

#[test]
fn kernels_of_scalapack_are_right_in_every_layout() {
    let listed = Command::new("ldconfig").arg("-p").output().map(|output| output.stdout).unwrap_or_default();
    let listed = String::from_utf8_lossy(&listed);
    let is_here = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !listed.contains("libscalapack-openmpi") || !is_here("mpirun.openmpi") {
        assert!(std::env::var_os("RESHARD_NEEDS_SCALAPACK").is_none(), "ScaLAPACK is not installed");
        return;
    }
    let run = |options: &[&str]| {
        let mut command = Command::new("mpirun.openmpi");
        command.args(["--allow-run-as-root", "--oversubscribe", "-n", "4", env!("CARGO_BIN_EXE_kernels")]);
        command.args(options).output().expect("the launcher is here")
    };
    // Every result is checked by the example itself. Blocks of 64 leave processes without rows or columns.
    let output = run(&["--sizes", "100", "--blocks", "4,64", "--repeat", "1"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one line of JSON");
    let layouts = ["1x4/4x4", "1x4/64x64", "2x2/4x4", "2x2/64x64", "4x1/4x4", "4x1/64x64"];
    assert_eq!(answer["layouts"], serde_json::json!(layouts));
    assert_eq!((&answer["size"], &answer["right_hand_sides"]), (&100.into(), &25.into()));
    let seconds = |list: &serde_json::Value| {
        let list = list.as_array().expect("a list");
        list.iter().filter(|seconds| seconds.as_f64().is_some_and(|seconds| seconds > 0.0)).count()
    };
    for kernel in 0..3 {
        assert!(answer["best"][kernel].as_u64().is_some_and(|best| best < 6), "{answer}");
        assert_eq!(seconds(&answer["moved"]["stay"][kernel]), 6, "{answer}");
        assert_eq!(seconds(&answer["moved"]["moved"][kernel]), 6, "{answer}");
    }
    assert_eq!(seconds(&answer["moved"]["chain"]), 6, "{answer}");
    assert_eq!(answer["redistributions"]["square"].as_array().map(Vec::len), Some(6));
    assert_eq!(answer["redistributions"]["sides"][5].as_array().map(Vec::len), Some(6));

    let output = run(&["--blocks", "4,x"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("--blocks was given \"4,x\"; it takes whole numbers"),
        "{said}"
    );
}

#[test]
fn first_programs_are_short() {
    for (text, most) in [
        (include_str!("../window_transpose.rs"), 15),
        (include_str!("../plan_kept.rs"), 20),
        (include_str!("../mpi_start_test.rs"), 25),
    ] {
        let is_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
        let lines = text.lines().filter(is_code).count();
        assert!(lines <= most, "{lines} lines of code, and {most} are enough:\n{text}");
    }
}
