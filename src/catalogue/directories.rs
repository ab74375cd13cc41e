//! The directories of definitions, and what is in them now.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use etcetera::BaseStrategy;
use serde::Serialize;

use super::definition::{Definition, Parsed, parse};
use super::error::{DefinitionError, DefinitionErrorKind, DefinitionWarning};
use super::file::{Stamp, read_text};
use super::grant::Grant;
use crate::tool::Toolset;

/// Files of one directory at most: a model that is to choose among more chooses badly.
const MAX_FILES: usize = 200;

/// Entries of one directory that are looked at at most.
const MAX_ENTRIES: usize = 10_000;

/// A file that changed so short a time before it was read may change again within the same tick of the disk's clock.
const TICK: Duration = Duration::from_secs(2);

/// Directories of definitions. Cheap to clone; clones share what they know of files.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    directories: Arc<[PathBuf]>,
    /// What files came to when they were last read. Taken alone, for one look.
    known: Arc<Mutex<HashMap<PathBuf, Known>>>,
}

#[derive(Debug, Clone)]
struct Known {
    stamp: Stamp,
    read_at: SystemTime,
    parsed: Parsed,
}

/// What is in the directories of a catalogue.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Listing {
    /// The agents that can be delegated to, by name.
    #[serde(rename = "agents")]
    pub definitions: Vec<Arc<Definition>>,
    /// What could not be used, in the order of the directories, and by file name.
    pub errors: Vec<DefinitionError>,
    /// What has no effect, or another one than it seems.
    pub warnings: Vec<DefinitionWarning>,
    /// Definitions that an earlier directory hides.
    pub shadowed: Vec<Shadowed>,
}

/// A definition that another one of its name hides.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shadowed {
    /// The name.
    pub name: Arc<str>,
    /// The file that is hidden.
    pub path: PathBuf,
    /// The file that counts.
    pub by: PathBuf,
}

impl Catalogue {
    /// Of these directories: the first one of a name wins. One that is not there is passed over.
    #[must_use]
    pub fn new<P: Into<PathBuf>>(directories: impl IntoIterator<Item = P>) -> Self {
        let mut all: Vec<PathBuf> = Vec::new();
        for directory in directories.into_iter().map(Into::into) {
            if !all.contains(&directory) {
                all.push(directory);
            }
        }
        Self { directories: all.into(), known: Arc::default() }
    }

    /// Of the named directories, the workspace's, and the user's: see the [module](super).
    #[must_use]
    pub fn standard<P: Into<PathBuf>>(named: impl IntoIterator<Item = P>, workspace: &Path) -> Self {
        let of_workspace = [workspace.join("agents"), workspace.join(".claude").join("agents")];
        let of_user = etcetera::choose_base_strategy()
            .ok()
            .map(|strategy| strategy.config_dir().join("anabranch").join("agents"));
        Self::new(named.into_iter().map(Into::into).chain(of_workspace).chain(of_user))
    }

    /// The directories, in their order.
    #[must_use]
    pub fn directories(&self) -> &[PathBuf] {
        &self.directories
    }

    /// Looks at all directories, and reads what has changed since the last look. Blocks for as long as that takes: with nothing
    /// changed, a look at each file's date.
    #[must_use]
    pub fn read(&self) -> Listing {
        let mut listing = Listing::default();
        let mut taken: HashMap<String, PathBuf> = HashMap::new();
        let mut seen: HashSet<PathBuf> = HashSet::new();
        for directory in &*self.directories {
            let files = match files_of(directory) {
                Ok(files) => files,
                Err(error) => {
                    listing.errors.push(error);
                    continue;
                }
            };
            if files.is_partial {
                let message = format!(
                    "it has more than {MAX_FILES} definitions, or {MAX_ENTRIES} entries; the others are left out, move some away"
                );
                listing.errors.push(DefinitionError::new(
                    directory,
                    None,
                    DefinitionErrorKind::TooMany,
                    message,
                ));
            }
            for path in files.paths {
                let Parsed { definition, warnings, .. } = self.look_at(&path);
                match definition {
                    Ok(definition) => {
                        let earlier = taken.get(&definition.name.to_ascii_lowercase());
                        listing.enter(definition, warnings, earlier, directory);
                    }
                    Err(error) => listing.errors.push(error),
                }
                seen.insert(path);
            }
            for definition in &listing.definitions {
                let name = definition.name.to_ascii_lowercase();
                taken.entry(name).or_insert_with(|| definition.path.clone());
            }
        }
        self.lock().retain(|path, _| seen.contains(path));
        listing.definitions.sort_by(|one, other| one.name.cmp(&other.name));
        listing
    }

    fn look_at(&self, path: &Path) -> Parsed {
        let stamp = Stamp::of(path).ok();
        if let Some(stamp) = stamp {
            let known = self.lock().get(path).cloned();
            if let Some(known) = known.filter(|known| known.holds(stamp)) {
                return known.parsed;
            }
        }
        let read_at = SystemTime::now();
        let parsed = match read_text(path) {
            Ok(text) => parse(&text, path),
            Err(error) => Parsed { definition: Err(error), warnings: Vec::new(), schema: None },
        };
        if let Some(stamp) = stamp {
            self.lock().insert(path.to_owned(), Known { stamp, read_at, parsed: parsed.clone() });
        }
        parsed
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<PathBuf, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn holds(&self, stamp: Stamp) -> bool {
        let settled = |stamp: &Stamp| {
            let age = stamp.modified.and_then(|modified| self.read_at.duration_since(modified).ok());
            age.is_some_and(|age| age > TICK)
        };
        let schema = self.parsed.schema.as_ref();
        let schema_holds = schema.is_none_or(|schema| {
            Stamp::of(&schema.path).ok() == schema.stamp && schema.stamp.as_ref().is_some_and(settled)
        });
        self.stamp == stamp && settled(&stamp) && schema_holds
    }
}

impl Listing {
    /// The definition of this name, whatever the case of its letters.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&Arc<Definition>> {
        let name = name.trim();
        self.definitions.iter().find(|definition| definition.name.eq_ignore_ascii_case(name))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.definitions.iter().map(|definition| &*definition.name)
    }

    /// The same, with what the definitions list held against the tools that there are: one of which no tool is there is an error
    /// instead, a name without a tool a warning.
    #[must_use]
    pub fn checked(mut self, tools: &Toolset) -> Self {
        let mut definitions = Vec::new();
        for definition in self.definitions {
            match Grant::of(&definition, tools) {
                Ok(grant) => {
                    let warn = |message| DefinitionWarning {
                        path: definition.path.clone(),
                        line: definition.tools_line,
                        message,
                    };
                    self.warnings.extend(grant.problems.into_iter().map(warn));
                    definitions.push(definition);
                }
                Err(message) => {
                    let (line, kind) = (definition.tools_line, DefinitionErrorKind::UnknownTools);
                    self.errors.push(DefinitionError::new(&definition.path, line, kind, message));
                }
            }
        }
        self.definitions = definitions;
        self
    }

    fn enter(
        &mut self,
        definition: Arc<Definition>,
        warnings: Vec<DefinitionWarning>,
        earlier: Option<&PathBuf>,
        directory: &Path,
    ) {
        if let Some(by) = earlier {
            let (name, path) = (Arc::clone(&definition.name), definition.path.clone());
            self.shadowed.push(Shadowed { name, path, by: by.clone() });
            return;
        }
        let here = |other: &&Arc<Definition>| {
            other.path.parent() == Some(directory) && other.name.eq_ignore_ascii_case(&definition.name)
        };
        if let Some(first) = self.definitions.iter().find(here) {
            let message = format!(
                "{} has the name {:?} already, whatever the case of its letters; give one of them another name",
                first.path.display(),
                &*first.name
            );
            let kind = DefinitionErrorKind::Duplicate;
            self.errors.push(DefinitionError::new(&definition.path, None, kind, message));
            return;
        }
        self.warnings.extend(warnings);
        self.definitions.push(definition);
    }
}

struct Files {
    /// By file name.
    paths: Vec<PathBuf>,
    /// There are more.
    is_partial: bool,
}

fn files_of(directory: &Path) -> Result<Files, DefinitionError> {
    let fail = |error: std::io::Error| {
        let message = format!("the directory cannot be read: {error}; mend or remove it");
        DefinitionError::new(directory, None, DefinitionErrorKind::Unreadable, message)
    };
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        // Most workspaces have none.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Files { paths: Vec::new(), is_partial: false });
        }
        Err(error) => return Err(fail(error)),
    };
    let (mut names, mut seen) = (Vec::new(), 0);
    for entry in entries.take(MAX_ENTRIES + 1) {
        seen += 1;
        let name = entry.map_err(fail)?.file_name();
        let shown = name.to_string_lossy();
        // A name that is nothing but the ending is a mistake, which is told; other hidden files are editors'.
        if shown.ends_with(".md") && (!shown.starts_with('.') || shown == ".md") {
            names.push(name);
        }
    }
    names.sort();
    let is_partial = names.len() > MAX_FILES || seen > MAX_ENTRIES;
    names.truncate(MAX_FILES);
    Ok(Files { paths: names.into_iter().map(|name| directory.join(name)).collect(), is_partial })
}

#[cfg(test)]
#[path = "directories_tests.rs"]
mod tests;
