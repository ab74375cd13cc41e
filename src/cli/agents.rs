//! `anabranch agents`: the agents that are defined by files, and what is wrong with others.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use super::args::{AgentsArgs, AgentsOutput};
use super::exit::ExitStatus;
use super::host::tools_of;
use super::options::{UsageError, agents as directories, directory};
use super::output::delivered;
use super::text::one_line;
use crate::agent::sandbox::{InProcess, Sandbox};
use crate::catalogue::{Catalogue, Definition, Listing, Spawner};

/// How much of a description is printed, in characters: about two lines.
const DESCRIPTION_CHARS: usize = 200;

/// Prints what is found. Files that cannot be used are no failure of the command.
pub(super) fn agents(
    args: &AgentsArgs,
    out: &mut impl Write,
    err: &mut impl Write,
) -> Result<ExitStatus, UsageError> {
    let workspace = directory("--workspace", &args.workspace)?;
    let catalogue = Catalogue::standard(directories(&args.agents)?, &workspace);
    let sandbox: Arc<dyn Sandbox> = Arc::new(InProcess);
    let tools = tools_of(&workspace, &Spawner::new(catalogue.clone()), &sandbox).map_err(|error| {
        UsageError::of_file("--workspace", &workspace, error.to_string(), "name a directory that can be read")
    })?;
    let listing = catalogue.read().checked(&tools);
    let printed = match args.output {
        AgentsOutput::Json => serde_json::to_writer_pretty(&mut *out, &listing)
            .map_err(io::Error::from)
            .and_then(|()| out.write_all(b"\n")),
        AgentsOutput::Text => write_listing(out, &listing, &catalogue, &workspace),
    };
    let printed = printed.and_then(|()| out.flush());
    Ok(if delivered(printed, err) { ExitStatus::Completed } else { ExitStatus::Failed })
}

fn write_listing(
    out: &mut impl Write,
    listing: &Listing,
    catalogue: &Catalogue,
    workspace: &Path,
) -> io::Result<()> {
    let place = |path: &Path| path.strip_prefix(workspace).unwrap_or(path).display().to_string();
    if listing.definitions.is_empty() {
        let looked: Vec<String> = catalogue.directories().iter().map(|path| place(path)).collect();
        let text =
            format!("No agents. A file NAME.md in one of these directories is one: {}.", looked.join(", "));
        writeln!(out, "{}", one_line(&text))?;
    }
    for definition in &listing.definitions {
        write_definition(out, definition, &place(&definition.path))?;
    }
    let mut section = |title: &str, lines: Vec<String>| -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n{title}:")?;
        lines.iter().try_for_each(|line| writeln!(out, "  {}", one_line(line)))
    };
    let with_line = |path: &Path, line: Option<usize>, message: &str| match line {
        Some(line) => format!("{}:{line}: {message}", place(path)),
        None => format!("{}: {message}", place(path)),
    };
    let errors = listing.errors.iter().map(|error| with_line(&error.path, error.line, &error.message));
    section("cannot be used", errors.collect())?;
    let warnings = listing.warnings.iter();
    let warnings = warnings.map(|warning| with_line(&warning.path, warning.line, &warning.message));
    section("without effect", warnings.collect())?;
    let shadowed = listing.shadowed.iter();
    let shadowed =
        shadowed.map(|one| format!("{}: {} has this name and comes first", place(&one.path), place(&one.by)));
    section("shadowed", shadowed.collect())
}

fn write_definition(out: &mut impl Write, definition: &Definition, place: &str) -> io::Result<()> {
    let Definition { name, description, tools, disallowed_tools, model, .. } = definition;
    let description = crate::tree::cut(&one_line(description), DESCRIPTION_CHARS);
    let tools = if tools.is_empty() { "all".to_owned() } else { tools.join(", ") };
    let but = if disallowed_tools.is_empty() {
        String::new()
    } else {
        format!(" but {}", disallowed_tools.join(", "))
    };
    let model = model.as_deref().map_or_else(String::new, |model| format!(" · model {model}"));
    writeln!(out, "{name}  {}", one_line(&format!("({place})")))?;
    writeln!(out, "  {description}")?;
    writeln!(out, "  {}", one_line(&format!("tools {tools}{but}{model}")))
}
