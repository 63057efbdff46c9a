//! What `cargo xtask install` installs, used as a stranger would: programs of C, C++ and Fortran are compiled with what lies below a prefix, and
//! run, under mpirun where they are for several ranks. The programs check what they move, element by element.
//!
//! Where a compiler or an MPI is missing its programs are left out, unless RESHARD_NEEDS_COMPILERS says that all must be here, as it does in
//! `cargo xtask test`, which installs them.

#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

mod tree;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tree::root;

/// A program that runs longer hangs.
const TIME_LIMIT: Duration = Duration::from_secs(1200);

/// A family of MPI: what its tools are called, and how four ranks are started on few processors.
struct Family {
    name: &'static str,
    launch: &'static [&'static str],
}

const OPEN_MPI: Family = Family {
    name: "openmpi",
    launch: &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "4"],
};
const MPICH: Family = Family { name: "mpich", launch: &["mpirun.mpich", "-n", "4"] };

/// The prefix into which everything is installed, once.
fn prefix() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        let _ = std::fs::remove_dir_all(&prefix);
        let mut install = Command::new(env!("CARGO_BIN_EXE_xtask"));
        install.args(["install", "--prefix"]).arg(&prefix).env("RESHARD_INSTALL_AS_TESTED", "1");
        succeeded(&install.output().unwrap(), "cargo xtask install");
        prefix
    })
}

/// A folder for the programs of a test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Whether all of these programs are here. If not, the test is left out, or fails where it must not be.
fn are_here(programs: &[&str]) -> bool {
    let is_here = |program: &&&str| Command::new(program).arg("--version").output().is_ok();
    let missing: Vec<_> = programs.iter().filter(|program| !is_here(program)).collect();
    let needed = std::env::var_os("RESHARD_NEEDS_COMPILERS").is_some();
    assert!(missing.is_empty() || !needed, "{missing:?} are missing, and must be tested with here");
    missing.is_empty()
}

#[track_caller]
fn succeeded(output: &Output, what: &str) {
    let (said, out) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{what}: {}\n{said}{out}", output.status);
}

/// Runs a command that must succeed; what it wrote, to either side.
#[track_caller]
fn run(command: &mut Command) -> String {
    let what = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{what}: {error}"));
    let readers = [reader(child.stdout.take().unwrap()), reader(child.stderr.take().unwrap())];
    let status = wait(&mut child);
    let text = readers.map(|reader| reader.join().unwrap()).concat();
    assert!(status.is_some_and(|success| success), "{what}: {status:?}\n{text}");
    text
}

fn reader(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Whether a child succeeded; nothing if its time was over.
fn wait(child: &mut Child) -> Option<bool> {
    let begin = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => return Some(status.success()),
            None if begin.elapsed() > TIME_LIMIT => {
                // A launcher that is told to end takes its ranks with it.
                run_quietly("kill", &[&child.id().to_string()]);
                std::thread::sleep(Duration::from_secs(2));
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn run_quietly(program: &str, arguments: &[&str]) {
    let _ = Command::new(program).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
}

/// What pkg-config says of an installed library.
fn flags(library: &str, options: &[&str]) -> Vec<String> {
    let mut config = Command::new("pkg-config");
    config.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(options).arg(library);
    run(&mut config).split_whitespace().map(String::from).collect()
}

/// A program compiled and linked with the installed library.
fn compiled(compiler: &str, words: &[&str], files: &[PathBuf], libraries: &[String], to: &Path) -> PathBuf {
    let program = to.join(files.last().unwrap().file_stem().unwrap());
    // Module files go where the program goes.
    run(Command::new(compiler)
        .current_dir(to)
        .args(words)
        .args(files)
        .args(libraries)
        .arg("-o")
        .arg(&program));
    program
}

/// A command that finds the installed libraries when it runs.
fn with_libraries(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix().join("lib")).env("RESHARD_MPI", "");
    command
}

/// Runs a program with four ranks.
#[track_caller]
fn launched(family: &Family, program: &Path, variables: &[(&str, &str)]) -> String {
    let mut command = with_libraries(family.launch[0]);
    command.args(&family.launch[1..]).arg(program).envs(variables.iter().copied());
    run(&mut command)
}

const STRICT: [&str; 5] = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"];

/// As C and as C++, without mpi.h and with it, before the header or after it, and with the header twice.
#[test]
fn the_header_compiles() {
    if !are_here(&["cc", "c++", "mpicc.openmpi", "mpicc.mpich"]) {
        return;
    }
    let (folder, include) = (folder("header"), root().join("crates/reshard-capi/include"));
    let wrapped = "int f(reshard_engine **e) { return reshard_engine_mpi(0, MPI_COMM_WORLD, 0, e); }";
    let ring = "int g(reshard_ring **r) { return reshard_ring_mpi(0, MPI_COMM_WORLD, 0, r); }";
    let both = format!("{wrapped}\n{ring}\n");
    let alone = "#include <reshard.h>\nint f(void) { return reshard_version()[0]; }\n".to_string();
    let orders = [
        ("first", format!("#include <mpi.h>\n#include <reshard.h>\n{both}")),
        ("last", format!("#include <reshard.h>\n#include <mpi.h>\n#include <reshard.h>\n{both}")),
        ("asked", format!("#define RESHARD_WITH_MPI\n#include <reshard.h>\n#include <reshard.h>\n{both}")),
    ];
    let compile = |compiler: &str, words: &[&str], name: &str, text: &str| {
        let file = folder.join(name);
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(compiler);
        command
            .args(words)
            .arg("-I")
            .arg(&include)
            .arg("-c")
            .arg(&file)
            .arg("-o")
            .arg(file.with_extension("o"));
        run(&mut command);
    };
    compile("cc", &STRICT, "alone.c", &alone);
    compile("c++", &["-std=c++11", "-Wall", "-Wextra", "-Werror", "-pedantic"], "alone.cpp", &alone);
    for (name, text) in &orders {
        compile("mpicc.openmpi", &STRICT, &format!("{name}.c"), text);
        // The headers of MPI are not as strict themselves: without the old bindings of C++, and not pedantic.
        let words = ["-Wall", "-Wextra", "-Werror", "-DOMPI_SKIP_MPICXX", "-DMPICH_SKIP_MPICXX"];
        compile("mpicc.mpich", &words, &format!("{name}-mpich.c"), text);
        compile("mpicxx.openmpi", &words, &format!("{name}.cpp"), text);
        compile("mpicxx.mpich", &words, &format!("{name}-mpich.cpp"), text);
    }
}

/// The constants and the functions of the Fortran module are those of the header.
#[test]
fn the_module_says_what_the_header_says() {
    let folder = root().join("crates/reshard-capi");
    let header = std::fs::read_to_string(folder.join("include/reshard.h")).unwrap();
    let module = std::fs::read_to_string(folder.join("fortran/reshard.f90")).unwrap();
    let words: Vec<&str> =
        module.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let mut found = 0;
    for line in header.lines().filter_map(|line| line.strip_prefix("#define RESHARD_")) {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let name = format!("RESHARD_{name}");
        // Declared as `NAME = value`.
        let in_module = words.windows(2).find(|two| two[0] == name && two[1].parse::<i32>().is_ok());
        if let Some(two) = in_module {
            assert_eq!(two[1], value, "{name}");
            found += 1;
        }
        assert!(in_module.is_some() || !name.starts_with("RESHARD_ERROR"), "{name} is not in the module");
    }
    assert!(found >= 19, "{found} constants");
    for name in module.split("name=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(
            name == "strlen"
                || header.contains(&format!(" {name}("))
                || header.contains(&format!("*{name}(")),
            "{name}"
        );
    }
}

/// What is installed: every exported name is in the header, every name of the header is exported, and no other.
#[test]
fn the_library_exports_what_the_header_declares() {
    if !are_here(&["nm", "readelf"]) {
        return;
    }
    let library = prefix().join("lib/libreshard.so");
    let names = run(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let mut exported: Vec<&str> = names.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.sort_unstable();
    let header = std::fs::read_to_string(prefix().join("include/reshard.h")).unwrap();
    let code: Vec<&str> = header.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = code.join("\n");
    let code = code.split("#endif").next().unwrap_or_default().to_string()
        + code.split_once("extern \"C\" {").map_or("", |(_, rest)| rest);
    let mut declared: Vec<&str> = code
        .match_indices("reshard_")
        .map(|(at, _)| {
            code[at..].split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
        })
        .filter(|name| code.contains(&format!("{name}(")) && !name.ends_with("_mpi"))
        .collect();
    declared.sort_unstable();
    declared.dedup();
    assert_eq!(exported, declared);
    assert!(declared.len() > 35, "{declared:?}");
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("[libreshard.so.0.1]"), "{dynamic}");
    assert!(!dynamic.contains("libmpi"), "{dynamic}");
}

#[test]
fn programs_of_c_run() {
    if !are_here(&["cc", "pkg-config"]) {
        return;
    }
    let (folder, source) = (folder("c"), root().join("examples/c/threads.c"));
    let shared = flags("reshard", &["--cflags", "--libs"]);
    let program = compiled("cc", &STRICT, std::slice::from_ref(&source), &shared, &folder);
    let said = run(&mut with_libraries(program));
    assert!(said.contains("at character 7"), "{said}");
    // Linked statically it needs no library when it runs.
    let mut archive = flags("reshard", &["--cflags", "--libs", "--static"]);
    archive.iter_mut().filter(|word| *word == "-lreshard").for_each(|word| *word = "-l:libreshard.a".into());
    let program = compiled("cc", &STRICT, &[source], &archive, &folder);
    run(&mut Command::new(program));
}

#[test]
fn programs_of_c_run_between_processes() {
    if !are_here(&["mpicc.openmpi", "mpicc.mpich", "mpirun.openmpi", "mpirun.mpich", "pkg-config"]) {
        return;
    }
    let libraries = flags("reshard", &["--cflags", "--libs"]);
    for family in [&OPEN_MPI, &MPICH] {
        let folder = folder(&format!("c-{}", family.name));
        let compiler = format!("mpicc.{}", family.name);
        let compile = |file: PathBuf| {
            let words = ["-std=c99", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror"];
            compiled(&compiler, &words, &[file], &libraries, &folder)
        };
        let ranks = compile(root().join("examples/c/ranks.c"));
        let said = launched(family, &ranks, &[]);
        assert!(said.contains("moved by private"), "{said}");
        let faults = compile(root().join("crates/reshard-capi/tests/faults.c"));
        let said = launched(family, &faults, &[]);
        assert_eq!(said.matches(": all of it").count(), 4, "{said}");
    }
}

/// Random programs on many communicators.
#[test]
fn random_programs_of_c_run() {
    if !are_here(&["mpicc.openmpi", "mpicc.mpich", "mpirun.openmpi", "mpirun.mpich", "pkg-config"]) {
        return;
    }
    let libraries = flags("reshard", &["--cflags", "--libs"]);
    let is_full = std::env::var_os("RESHARD_FULL").is_some();
    for family in [&OPEN_MPI, &MPICH] {
        let folder = folder(&format!("c-programs-{}", family.name));
        let compiler = format!("mpicc.{}", family.name);
        let words = ["-std=c99", "-Wall", "-Wextra", "-Werror"];
        let source = root().join("crates/reshard-capi/tests/programs.c");
        let program = compiled(&compiler, &words, &[source], &libraries, &folder);
        for (ranks, count) in [(1, 5), (2, 0), (3, 15), (4, 5), (8, 0)] {
            let (launches, count) = match count {
                _ if is_full => (10, 10),
                0 => continue,
                _ => (1, count),
            };
            for seed in 100 * ranks..100 * ranks + launches {
                let mut command = with_libraries(family.launch[0]);
                command.args(&family.launch[1..family.launch.len() - 1]).arg(ranks.to_string()).arg(&program);
                let said = run(command.args([seed.to_string(), "0".into(), count.to_string()]));
                assert_eq!(said.matches(&format!("{count} programs")).count(), ranks, "{said}");
            }
        }
    }
}

/// A producer and a consumer: launched apart, and as two programs of one launch.
#[test]
fn programs_of_c_are_coupled() {
    if !are_here(&["mpicc.openmpi", "mpicc.mpich", "mpirun.openmpi", "mpirun.mpich", "pkg-config"]) {
        return;
    }
    let libraries = flags("reshard", &["--cflags", "--libs"]);
    for family in [&OPEN_MPI, &MPICH] {
        let folder = folder(&format!("coupled-{}", family.name));
        let source = root().join("examples/c/coupled.c");
        let program = compiled(
            &format!("mpicc.{}", family.name),
            &["-Wall", "-Wextra", "-Werror"],
            &[source],
            &libraries,
            &folder,
        );
        let (launcher, flags) = (family.launch[0], &family.launch[1..family.launch.len() - 1]);
        let meeting = folder.join("run.meet");
        let side = |role: &str, ranks: &str| {
            let mut command = with_libraries(launcher);
            command.args(flags).arg(ranks).arg(&program).arg(role).arg(&meeting);
            command
        };
        let mut consumer = side("consume", "3");
        let consumer = std::thread::spawn(move || run(&mut consumer));
        let said = run(&mut side("produce", "4"));
        assert!(said.contains("put 10 steps, 1 consumer took them all"), "{said}");
        let said = consumer.join().unwrap();
        assert!(said.contains("got 10 steps, every element right"), "{said}");
        let mut both = with_libraries(launcher);
        both.args(flags).arg("4").arg(&program).arg("produce");
        both.args([":", "-n", "3"]).arg(&program).arg("consume");
        let said = run(&mut both);
        assert!(said.contains("put 10 steps") && said.contains("got 10 steps"), "{said}");
    }
}

/// A program that calls pdgemr2d, as it always was: with ScaLAPACK alone, with our library linked first, and with it preloaded.
#[test]
fn a_program_that_calls_pdgemr2d_is_not_changed() {
    let scalapack = run(Command::new("sh").args(["-c", "ls /usr/lib/*/libscalapack-openmpi.so || true"]));
    let needed = std::env::var_os("RESHARD_NEEDS_SCALAPACK").is_some();
    assert!(
        !needed || scalapack.contains(".so\n"),
        "libscalapack-openmpi-dev is missing, and must be tested with here"
    );
    if !scalapack.ends_with(".so\n")
        || !are_here(&["gfortran", "mpif90.openmpi", "mpirun.openmpi", "pkg-config"])
    {
        return;
    }
    let (folder, source) = (folder("gemr2d"), root().join("examples/fortran/gemr2d.f90"));
    let with = |library: &[String]| {
        let libraries = [library, &["-lscalapack-openmpi".to_string()]].concat();
        compiled("mpif90.openmpi", &[], std::slice::from_ref(&source), &libraries, &folder)
    };
    let report = ("RESHARD_SCALAPACK", "report");
    let alone = with(&[]);
    let said = launched(&OPEN_MPI, &alone, &[report]);
    assert!(said.contains("moved") && !said.contains("reshard:"), "{said}");
    let preloaded = prefix().join("lib/libreshard_scalapack.so");
    let said = launched(&OPEN_MPI, &alone, &[report, ("LD_PRELOAD", &preloaded.to_string_lossy())]);
    assert!(said.contains("moved") && said.contains("reshard: pdgemr2d 500 x 400"), "{said}");
    let linked = with(&flags("reshard_scalapack", &["--libs"]));
    let said = launched(&OPEN_MPI, &linked, &[report]);
    assert!(said.contains("moved") && said.contains("reshard: pdgemr2d 500 x 400"), "{said}");
}

#[test]
fn a_program_with_the_fortran_module_runs() {
    if !are_here(&["gfortran", "mpif90.openmpi", "mpirun.openmpi", "pkg-config"]) {
        return;
    }
    let folder = folder("fortran");
    let files = [prefix().join("include/reshard.f90"), root().join("examples/fortran/ranks.f90")];
    let libraries = flags("reshard", &["--libs"]);
    let program = compiled("mpif90.openmpi", &["-Wall", "-fcheck=all"], &files, &libraries, &folder);
    let said = launched(&OPEN_MPI, &program, &[]);
    assert!(said.contains("moved"), "{said}");
    // A compiler that optimises may keep in registers what it believes nobody else writes to.
    let program = compiled("mpif90.openmpi", &["-Wall", "-O3"], &files, &libraries, &folder);
    let said = launched(&OPEN_MPI, &program, &[]);
    assert!(said.contains("moved"), "{said}");
    // Sections of arrays.
    let files = [prefix().join("include/reshard.f90"), root().join("crates/reshard-capi/tests/sections.f90")];
    let program = compiled("gfortran", &["-Wall", "-fcheck=all"], &files, &libraries, &folder);
    assert!(run(&mut with_libraries(program)).contains("as they should be"));
    // The module itself, as the standard wants it.
    let module = prefix().join("include/reshard.f90");
    let strict = ["-std=f2018", "-Wall", "-Wextra", "-Werror", "-c"];
    compiled("gfortran", &strict, std::slice::from_ref(&module), &[], &folder);
    compiled("gfortran", &["-fdefault-integer-8", "-Wall", "-Werror", "-c"], &[module], &[], &folder);
}

#[test]
fn a_project_of_cmake_finds_the_package() {
    if !are_here(&["cmake", "cc", "mpicc.openmpi", "mpif90.openmpi", "mpirun.openmpi"]) {
        return;
    }
    let (build, source) = (folder("cmake"), root().join("examples/cmake"));
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&source).arg("-B").arg(&build);
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()));
    configure.args(["-DMPI_C_COMPILER=mpicc.openmpi", "-DMPI_Fortran_COMPILER=mpif90.openmpi"]);
    run(&mut configure);
    run(Command::new("cmake").arg("--build").arg(&build));
    let said = run(Command::new("ctest").arg("--test-dir").arg(&build).arg("--output-on-failure"));
    assert!(said.contains("100% tests passed") && said.contains("out of 2"), "{said}");
    for program in ["ranks", "ranks_fortran"] {
        let said = launched(&OPEN_MPI, &build.join(program), &[]);
        assert!(said.contains("moved"), "{said}");
    }
    // Another minor version is another interface.
    let other = folder("cmake-other");
    let text =
        "cmake_minimum_required(VERSION 3.16)\nproject(other NONE)\nfind_package(reshard 0.2 REQUIRED)\n";
    std::fs::write(other.join("CMakeLists.txt"), text).unwrap();
    let mut configure = Command::new("cmake");
    configure.arg("-S").arg(&other).arg("-B").arg(other.join("build"));
    configure.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix().display()));
    let output = configure.output().unwrap();
    assert!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("0.1.0"),
        "{output:?}"
    );
}

/// Every program that is an example is one that a test names.
#[test]
fn every_example_is_tested() {
    let text = std::fs::read_to_string(root().join("xtask/tests/installed.rs")).unwrap();
    for below in ["c", "fortran", "cmake"] {
        for entry in std::fs::read_dir(root().join("examples").join(below)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let named = text.contains(&format!("examples/{below}/{name}")) || below == "cmake";
            assert!(named, "examples/{below}/{name} is in no test");
        }
    }
}
