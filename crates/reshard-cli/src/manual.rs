//! `reshard completions` and `reshard man`: written from the definitions of the command line, so they are never behind it.

use crate::args::{self, Args};
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::Path;

pub fn completions(args: &args::Completions) -> Result<(), Failure> {
    // The generator panics if writing fails, so it writes to memory.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "reshard", &mut text);
    Ok(io::stdout().write_all(&text)?)
}

pub fn pages(args: &args::Man) -> Result<(), Failure> {
    let mut program = Args::command();
    program.build();
    if let Some(directory) = &args.dir {
        return write_pages(&program, directory);
    }
    let page = match &args.command {
        None => page(&program)?,
        Some(name) => {
            let command = program.get_subcommands().find(|command| command.get_name() == name);
            page(command.ok_or_else(|| {
                Failure::usage(&format!("there is no command {name:?}; `reshard --help` lists the commands"))
            })?)?
        }
    };
    Ok(io::stdout().write_all(&page)?)
}

fn page(command: &Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command.clone()).render(&mut page)?;
    Ok(page)
}

/// Writes the page of the program and of each command, such as `reshard-plan.1`.
fn write_pages(program: &Command, directory: &Path) -> Result<(), Failure> {
    let failed = |path: &Path, error: &io::Error| Failure::failed(format!("{}: {error}", path.display()));
    std::fs::create_dir_all(directory).map_err(|error| failed(directory, &error))?;
    for command in std::iter::once(program).chain(program.get_subcommands()) {
        let man = Man::new(command.clone());
        let path = directory.join(man.get_filename());
        std::fs::write(&path, page(command)?).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}
