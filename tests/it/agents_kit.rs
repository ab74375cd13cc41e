//! What the tests of the catalogue share: directories of definitions, and a root that may delegate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anabranch::catalogue::{Catalogue, Delegate, Spawner};
use anabranch::tool::{Tool, ToolReply, Toolset, tool_fn};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::stage::{Played, Stage, all_tools, calls, results};

/// A directory of definitions.
pub struct Agents(TempDir);

impl Agents {
    /// Files by name, each its front matter beside the description; the body is its name.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let agents = Self(tempfile::tempdir().unwrap());
        for (name, keys) in files {
            agents.add(name, keys);
        }
        agents
    }

    pub fn add(&self, name: &str, keys: &str) {
        self.write(&format!("{name}.md"), &definition(name, keys));
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).unwrap();
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn spawner(&self) -> Spawner {
        Spawner::new(Catalogue::new([self.path()]))
    }

    /// All tools, and `delegate` to these.
    pub fn tools(&self) -> Toolset {
        Delegate::new(self.spawner()).add_to(&all_tools()).unwrap()
    }

    /// The script's agents, with these.
    pub fn stage(&self, script: Value) -> Stage {
        Stage::new(script).tools(self.tools())
    }
}

pub fn definition(name: &str, keys: &str) -> String {
    format!("---\ndescription: Does {name}.\n{keys}\n---\nYou are {name}.\n")
}

/// A turn that delegates.
pub fn delegate(agent: &str, task: &str) -> Value {
    calls("delegate", json!({ "agent": agent, "task": task }))
}

/// A turn that reports.
pub fn finish(status: &str, summary: &str) -> Value {
    calls("finish", json!({ "status": status, "summary": summary }))
}

/// A root that delegates once and is done, and an agent that does this.
pub fn one(agent: &str, turns: Value) -> Value {
    json!([
        { "when": { "depth": 0 }, "turns": [delegate(agent, "the task"), { "text": "done" }] },
        { "when": { "depth": 1 }, "turns": turns },
    ])
}

/// What the root's model read as the result of its first call.
pub fn answer(played: &Played) -> Value {
    nth_answer(played, 0)
}

pub fn nth_answer(played: &Played, at: usize) -> Value {
    let requests = played.model.requests();
    let last = requests.iter().rfind(|request| request.run.depth == 0).unwrap();
    serde_json::from_str(results(last)[at]).unwrap()
}

/// A tool that counts how often it is reached.
pub fn counted(name: &str) -> (impl Tool + use<>, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let reached = Arc::clone(&count);
    let tool = tool_fn(name, "Counts.", move |_: Map<String, Value>, _| {
        reached.fetch_add(1, Ordering::Relaxed);
        async { ToolReply::ok("counted") }
    });
    (tool, count)
}
