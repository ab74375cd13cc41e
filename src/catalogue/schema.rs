//! The schema of a definition's result: in the file, or in one beside it.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::error::{DefinitionError, DefinitionErrorKind};
use super::file::{Stamp, read_text};
use crate::tool::Schema;

/// A file that a definition depends on, as it was when it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaFile {
    pub(super) path: PathBuf,
    /// None: it was not there.
    pub(super) stamp: Option<Stamp>,
}

/// Reads the value of `output_schema`, and says in `file` which file it is from, if it is from one.
pub(super) fn read_schema(
    value: &Value,
    path: &Path,
    line: Option<usize>,
    file: &mut Option<SchemaFile>,
) -> Result<Arc<Value>, DefinitionError> {
    let fail = |message: String| DefinitionError::new(path, line, DefinitionErrorKind::BadSchema, message);
    let (schema, of) = match value {
        Value::Object(_) => (value.clone(), "output_schema".to_owned()),
        Value::String(name) => {
            let beside = beside(path, name).ok_or_else(|| {
                let name = crate::message::cap_text(name, 100);
                fail(format!("output_schema {name:?} does not lie beside the file; name a JSON file of the same directory or below it"))
            })?;
            *file = Some(SchemaFile { stamp: Stamp::of(&beside).ok(), path: beside.clone() });
            let text = read_text(&beside)
                .map_err(|error| fail(format!("output_schema {}: {}", beside.display(), error.message)))?;
            let schema = serde_json::from_str(&text).map_err(|error| {
                fail(format!(
                    "output_schema {} is no JSON: {error}; write a JSON schema into it",
                    beside.display()
                ))
            })?;
            (schema, beside.display().to_string())
        }
        _ => {
            return Err(fail(
                "output_schema is no schema; give a mapping, or the name of a JSON file beside this one"
                    .to_owned(),
            ));
        }
    };
    if !schema.is_object() {
        return Err(fail(format!("{of} is no JSON schema: it is no object; see https://json-schema.org")));
    }
    let schema = Arc::new(schema);
    match Schema::compile(Arc::clone(&schema), "output_schema") {
        Ok(_) => Ok(schema),
        Err(error) => {
            let error = crate::message::cap_text(&error.to_string(), 500);
            Err(fail(format!("{of} is no JSON schema: {error}; see https://json-schema.org")))
        }
    }
}

/// A path that stays in the directory of the file.
fn beside(path: &Path, name: &str) -> Option<PathBuf> {
    let name = Path::new(name.trim());
    let stays = name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
    (stays && name.file_name().is_some()).then(|| path.parent().unwrap_or(Path::new("")).join(name))
}
