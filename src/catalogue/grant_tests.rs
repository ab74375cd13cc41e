//! Lists of tools, held against those that there are.

use std::path::Path;

use super::*;
use crate::tool::{ToolReply, tool_fn};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn tools(names: &[&str]) -> Toolset {
    names.iter().fold(Toolset::new(), |tools, name| {
        tools.with(tool_fn(name, "Does it.", |_: Nothing, _| async { ToolReply::ok("done") })).unwrap()
    })
}

fn grant(keys: &str) -> Result<Grant, String> {
    let text = format!("---\ndescription: d\n{keys}\n---\np");
    let definition = Definition::parse(&text, Path::new("a.md")).unwrap();
    Grant::of(&definition, &tools(&["read_file", "grep", "edit_file", "delegate"]))
}

#[test]
fn c11_c13_names_narrow_and_no_list_is_everything() {
    assert_eq!(grant(""), Ok(Grant::default()));
    assert_eq!(grant("tools: []"), Ok(Grant::default()));
    assert_eq!(grant("tools: '*'"), Ok(Grant::default()));
    let only = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    assert_eq!(grant("tools: [grep, read_file, grep]").unwrap().tools, only(&["grep", "read_file"]));
    let grant = grant("tools: [grep, gerp]").unwrap();
    assert_eq!(grant.tools, only(&["grep"]));
    assert_eq!(grant.problems, ["there is no tool \"gerp\" here; did you mean grep?"]);
}

#[test]
fn names_of_other_programs_stand_for_ours() {
    let grant =
        grant("tools: Read, Grep, MultiEdit, Edit, Task, Bash, WebFetch\ndisallowedTools: Edit").unwrap();
    assert_eq!(grant.tools.unwrap(), ["read_file", "grep", "edit_file", "delegate"]);
    assert_eq!(grant.denied, ["edit_file"]);
    assert_eq!(grant.problems[0], "there is no tool \"Bash\" here; leave it out");
    assert_eq!(grant.problems.len(), 2);
}

/// What a pattern would leave out cannot be left out here: so it grants nothing, and denies everything.
#[test]
fn patterns_never_widen() {
    let grant = grant("tools: Grep, Read(src/**)\ndisallowed_tools: Edit(src/**)").unwrap();
    assert_eq!((grant.tools.unwrap(), grant.denied), (vec!["grep".to_owned()], vec!["edit_file".to_owned()]));
    assert!(grant.problems.iter().all(|problem| problem.contains("with a pattern")), "{:?}", grant.problems);
}

/// Of what is disallowed, everything is everything, and what is not here yet is disallowed too.
#[test]
fn what_is_disallowed_is_never_passed_over() {
    let denied = grant("disallowed_tools: '*'").unwrap();
    assert_eq!(denied.denied, ["read_file", "grep", "edit_file", "delegate", EXECUTE_CODE]);
    let denied = grant("disallowed_tools: [execute_code, finish]").unwrap();
    assert_eq!(denied.denied, [EXECUTE_CODE]);
    assert_eq!(
        denied.problems,
        ["the tool finish cannot be disallowed: with it a run says how it ended; leave it out"]
    );
}

/// It is always there, so to list it changes nothing.
#[test]
fn finish_may_be_listed() {
    let of = |keys| grant(keys).map(|grant| (grant.tools, grant.problems));
    assert_eq!(of("tools: [grep, finish]"), Ok((Some(vec!["grep".to_owned()]), vec![])));
    assert_eq!(of("tools: finish"), Ok((Some(vec![]), vec![])));
}

#[test]
fn c14_a_list_of_which_nothing_is_there_is_an_error_that_names_it() {
    assert_eq!(
        grant("tools: Bash, shell").unwrap_err(),
        "none of the tools of the agent a is there (Bash, shell); the tools are read_file, grep, edit_file, delegate"
    );
}
