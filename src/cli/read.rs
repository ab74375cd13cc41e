//! Files that a flag names, read as text.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// A file that is no text of this command: what is wrong, and how to mend it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) what: String,
    pub(super) fix: &'static str,
}

/// The text of a file, or of standard input for `-` where that is taken, without the mark that some editors put at its beginning. No
/// more than `max` bytes are read: a file that is named by mistake may have no end.
pub(super) fn read_text(path: &Path, max: u64, takes_stdin: bool) -> Result<String, Unreadable> {
    let unreadable =
        |error: io::Error| Unreadable { what: error.to_string(), fix: "name a file that can be read" };
    let source: Box<dyn Read> = match path.to_str() {
        Some("-") if takes_stdin => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).map_err(unreadable)?),
    };
    let mut bytes = Vec::new();
    source.take(max + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > max {
        let what = format!("more than {max} bytes");
        return Err(Unreadable { what, fix: "name the file that was meant, or write less" });
    }
    let text = String::from_utf8(bytes)
        .map_err(|error| Unreadable { what: error.to_string(), fix: "save it as UTF-8" })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_its_bound_and_no_further() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        std::fs::write(&path, "\u{feff}four").unwrap();
        assert_eq!(read_text(&path, 7, false).unwrap(), "four");
        assert_eq!(read_text(&path, 6, false).unwrap_err().what, "more than 6 bytes");
        std::fs::write(&path, [0xff]).unwrap();
        assert_eq!(read_text(&path, 7, false).unwrap_err().fix, "save it as UTF-8");
        assert_eq!(read_text(directory.path(), 7, false).unwrap_err().fix, "name a file that can be read");
        assert!(read_text(Path::new("-"), 7, false).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_without_an_end_is_not_read_to_it() {
        let read = read_text(Path::new("/dev/zero"), 1 << 10, false);
        assert_eq!(read.unwrap_err().what, "more than 1024 bytes");
    }
}
