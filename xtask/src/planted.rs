//! The set of planted bugs, `xtask/mutants.txt`, as text: its top says how it is written. Its test reads it with this, too.

/// One planted bug: a text of one file is replaced, and the tests of a crate should notice.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Bug {
    pub name: String,
    pub package: String,
    pub file: String,
    pub search: String,
    pub replace: String,
}

impl Bug {
    /// The file's text with the bug; an error unless the text that is searched occurs once.
    pub fn planted_in(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.search).count() {
            1 => Ok(text.replacen(&self.search, &self.replace, 1)),
            count => Err(format!("{}: the text to search is {count} times in {}", self.name, self.file)),
        }
    }
}

/// All bugs of a set.
pub fn bugs(text: &str) -> Result<Vec<Bug>, String> {
    text.split("\n== ").skip(1).map(bug).collect()
}

fn bug(section: &str) -> Result<Bug, String> {
    let mut lines = section.lines();
    let name = lines.next().unwrap_or_default().trim();
    let mut field = |key: &str| -> Result<String, String> {
        let line = lines.next().and_then(|line| line.strip_prefix(key)?.strip_prefix(' '));
        line.map(String::from).ok_or_else(|| format!("{name}: a line `{key} ...` is missing"))
    };
    let (package, file) = (field("crate")?, field("file")?);
    let (mut search, mut replace) = (Vec::new(), Vec::new());
    for line in lines.filter(|line| !line.is_empty()) {
        match (line.split_at_checked(2), line) {
            (Some(("- ", code)), _) if replace.is_empty() => search.push(code),
            (Some(("+ ", code)), _) => replace.push(code),
            (_, "-") if replace.is_empty() => search.push(""),
            (_, "+") => replace.push(""),
            _ => {
                return Err(format!(
                    "{name}: {line:?} begins neither with \"- \" nor, after that, with \"+ \""
                ));
            }
        }
    }
    if search.is_empty() || replace.is_empty() || search == replace {
        return Err(format!("{name}: nothing is replaced, or by itself"));
    }
    let (search, replace) = (search.join("\n"), replace.join("\n"));
    Ok(Bug { name: name.to_string(), package, file, search, replace })
}
