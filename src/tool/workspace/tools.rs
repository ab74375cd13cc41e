//! The operations as tools: each runs on a thread that may block, and stops when its run is cancelled.

use std::sync::Arc;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::Workspace;
use super::{EditFileArgs, GlobArgs, GrepArgs, ListDirectoryArgs, ReadFileArgs, WriteFileArgs};
use crate::error::Result;
use crate::model::ToolSpec;
use crate::tool::typed::{parameters_of, parse_arguments};
use crate::tool::{Access, OnCancel, Tool, ToolContext, ToolReply, Toolset};

impl Workspace {
    /// Adds all workspace tools to a set: the four that read, then the two that write.
    ///
    /// # Errors
    ///
    /// If the set has a tool of the same name.
    pub fn add_to(&self, tools: &Toolset) -> Result<Toolset> {
        let read = Access::Read;
        let text =
            |key: &'static str| move |args: &Map<String, Value>| Some(args.get(key)?.as_str()?.to_owned());
        tools
            .with(self.tool(
                "read_file",
                "Reads a text file, or some lines of it. Each line comes with its number.",
                read,
                |name| format!("Reading {name}"),
                text("path"),
                |workspace: &Workspace, args: &ReadFileArgs, stop| workspace.read_file(args, stop),
            ))?
            .with(self.tool(
                "list_directory",
                "Lists a directory: subdirectories end with a slash, files come with their size.",
                read,
                |name| format!("Listing {name}"),
                text("path"),
                |workspace: &Workspace, args: &ListDirectoryArgs, stop| workspace.list_directory(args, stop),
            ))?
            .with(self.tool(
                "glob",
                "Finds files by a pattern such as `src/**/*.rs`. Respects ignore files.",
                read,
                |name| format!("Finding {name}"),
                text("pattern"),
                |workspace: &Workspace, args: &GlobArgs, stop| workspace.glob(args, stop),
            ))?
            .with(self.tool(
                "grep",
                "Searches the text of files by a regular expression (Rust's syntax). Answers with `path:line:text`. Respects ignore files.",
                read,
                |name| format!("Searching for {name}"),
                text("pattern"),
                |workspace: &Workspace, args: &GrepArgs, stop| workspace.grep(args, stop),
            ))?
            .with(self.tool(
                "write_file",
                "Writes a whole file, making its directories where they lack.",
                Access::Write,
                |name| format!("Writing {name}"),
                text("path"),
                |workspace: &Workspace, args: &WriteFileArgs, stop| workspace.write_file(args, stop),
            ))?
            .with(self.tool(
                "edit_file",
                "Replaces a text in a file. The text must occur exactly once unless `replace_all` is set.",
                Access::Write,
                |name| format!("Editing {name}"),
                text("path"),
                |workspace: &Workspace, args: &EditFileArgs, stop| workspace.edit_file(args, stop),
            ))
    }

    fn tool<A, S, K, F>(
        &self,
        name: &str,
        description: &str,
        access: Access,
        status: S,
        key: K,
        operation: F,
    ) -> impl Tool + use<A, S, K, F>
    where
        A: DeserializeOwned + JsonSchema + Send + 'static,
        S: Fn(&str) -> String + Send + Sync + 'static,
        K: Fn(&Map<String, Value>) -> Option<String> + Send + Sync + 'static,
        F: Fn(&Workspace, &A, &dyn Fn() -> bool) -> ToolReply + Send + Sync + 'static,
    {
        let mut parameters = parameters_of::<A>();
        // It says no more than that they are the arguments of the tool.
        if let Some(schema) = parameters.as_object_mut() {
            schema.remove("description");
        }
        let spec = ToolSpec { name: name.into(), description: description.into(), parameters };
        let run =
            Arc::new(move |workspace: &Workspace, args: Map<String, Value>, stop: &dyn Fn() -> bool| {
                parse_arguments::<A>(args)
                    .map_or_else(|reply| reply, |args| operation(workspace, &args, stop))
            });
        WorkspaceTool {
            spec,
            access,
            workspace: self.clone(),
            status: Box::new(move |args| key(args).map(|name| status(&name))),
            run,
        }
    }
}

type Status = Box<dyn Fn(&Map<String, Value>) -> Option<String> + Send + Sync>;

struct WorkspaceTool<F> {
    spec: ToolSpec,
    access: Access,
    workspace: Workspace,
    status: Status,
    run: Arc<F>,
}

impl<F> Tool for WorkspaceTool<F>
where
    F: Fn(&Workspace, Map<String, Value>, &dyn Fn() -> bool) -> ToolReply + Send + Sync + 'static,
{
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn access(&self) -> Access {
        self.access
    }

    /// The operations look at the token for each file, so they end in time; a write is not to be left half done.
    fn on_cancel(&self) -> OnCancel {
        OnCancel::Grace
    }

    /// With the place to which the path leads; without one that is the workspace itself.
    fn meaning(&self, args: &Map<String, Value>) -> Option<Map<String, Value>> {
        let path = args.get("path").and_then(Value::as_str).unwrap_or(".");
        let place = self.workspace.resolve(path).ok()?;
        let mut meaning = args.clone();
        meaning.insert("path".to_owned(), Value::String(place.path().to_string_lossy().into_owned()));
        Some(meaning)
    }

    fn status_text(&self, args: &Map<String, Value>) -> Option<String> {
        (self.status)(args)
    }

    fn call<'a>(&'a self, args: Map<String, Value>, cx: ToolContext) -> BoxFuture<'a, ToolReply> {
        Box::pin(async move {
            let workspace = match cx.reach(&args, "path") {
                Some(reach) => {
                    self.workspace.closed_where(move |place| !reach.covers(place.to_string_lossy()))
                }
                None => self.workspace.clone(),
            };
            let (run, token) = (Arc::clone(&self.run), cx.run().token().clone());
            let work = move || run(&workspace, args, &|| token.is_cancelled());
            match cx.run().blocking(work).await {
                Ok(reply) => reply,
                Err(_) => ToolReply::error("cancelled", "The run was cancelled before the operation began."),
            }
        })
    }
}

#[cfg(test)]
#[path = "tools_tests.rs"]
mod tests;
