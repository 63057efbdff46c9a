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
