//! What the flags take and refuse, and the help text.

use std::path::Path;

use clap::CommandFactory;

use super::super::options::{ModelChoice, RunOptions};
use super::*;

fn parse(args: &[&str]) -> Result<Command, String> {
    let args = ["anabranch"].iter().chain(args);
    Cli::try_parse_from(args).map(|cli| cli.command).map_err(|error| error.to_string())
}

fn options(args: &[&str]) -> Result<RunOptions, String> {
    match parse(&[&["run"], args].concat())? {
        Command::Run(args) => RunOptions::try_from(*args).map_err(|error| error.to_string()),
        other => panic!("{other:?}"),
    }
}

fn model_of(args: &[&str]) -> ModelChoice {
    options(args).unwrap().host.model
}

#[test]
fn the_definition_is_sound() {
    Cli::command().debug_assert();
}

#[test]
fn defaults() {
    let options = options(&["find it"]).unwrap();
    assert_eq!((&*options.task, options.host.model), ("find it", ModelChoice::Offline));
    assert_eq!(options.host.workspace, Path::new(".").canonicalize().unwrap());
    assert_eq!((options.host.output, options.host.background), (RunOutput::Auto, BackgroundPolicy::Join));
    assert!(options.schema.is_none() && options.host.rules.is_empty());
    assert!(!options.host.chaos && options.host.seed.is_none());
    assert_eq!(options.host.ask_timeout, Duration::from_mins(10));
    let limits = options.host.limits;
    assert_eq!((limits.max_depth, limits.max_runs), (Limit::At(3), Limit::At(1000)));
    assert_eq!((limits.max_live, limits.timeout), (Limit::Unlimited, Limit::Unlimited));
    assert_eq!(limits.budget_usd, Limit::Unlimited);
}

#[test]
fn every_option_is_taken() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let schema = file("schema.json", r#"{"type": "object", "required": ["n"]}"#);
    let script = file("script.json", "{}");
    let workspace = directory.path().display().to_string();
    let model = format!("script:{script}");
    let line = "--max-depth 0 --max-live 4 --max-runs unlimited --max-turns 9 --max-tool-calls 0 --timeout 1h30m \
        --idle-timeout 0 --budget-tokens 5000 --budget-usd 0.5 --allow write_file,edit_file --allow x(path={a,b}) --ask y --deny grep \
        --ask-timeout 90s --seed 7 --tools chaos --background-policy cancel --output jsonl";
    let mut args: Vec<&str> = line.split_whitespace().collect();
    args.extend(["--schema", &schema, "--model", &model, "--workspace", &workspace, "do it"]);
    let options = options(&args).unwrap();
    assert_eq!(options.host.model, ModelChoice::Script(script.into()));
    let served = model_of(&["x", "--model", "openai:m", "--base-url", "http://host/v1"]);
    assert!(
        matches!(served, ModelChoice::Provider { name, base_url: Some(url) } if name.model() == "m" && url == "http://host/v1")
    );
    assert_eq!(options.host.workspace, directory.path().canonicalize().unwrap());
    assert_eq!(options.schema.unwrap()["required"][0], "n");
    assert_eq!(options.host.ask_timeout, Duration::from_secs(90));
    let rules: Vec<String> =
        options.host.rules.iter().map(|(effect, rule)| format!("{effect:?} {rule}")).collect();
    let expected = ["Allow write_file", "Allow edit_file", "Allow x(path={a,b})", "Ask y", "Deny grep"];
    assert_eq!(
        (rules, options.host.chaos, options.host.seed),
        (expected.map(str::to_owned).into(), true, Some(7))
    );
    assert_eq!((options.host.output, options.host.background), (RunOutput::Jsonl, BackgroundPolicy::Cancel));
    let limits = options.host.limits;
    assert_eq!((limits.max_depth, limits.max_live), (Limit::At(0), Limit::At(4)));
    assert_eq!((limits.max_runs, limits.max_turns), (Limit::Unlimited, Limit::At(9)));
    assert_eq!((limits.max_tool_calls, limits.budget_tokens), (Limit::At(0), Limit::At(5000)));
    assert_eq!(limits.timeout, Limit::At(Duration::from_secs(5400)));
    assert_eq!((limits.idle_timeout, limits.budget_usd), (Limit::At(Duration::ZERO), Limit::At(0.5)));
}

#[test]
fn what_cannot_be_used_is_named_with_a_way_out() {
    let directory = tempfile::tempdir().unwrap();
    let bad = directory.path().join("bad.json");
    std::fs::write(&bad, r#"{"type": 5}"#).unwrap();
    let bad = bad.display().to_string();
    let cases: &[(&[&str], &[&str])] = &[
        (&[], &["<TASK>"]),
        (&[""], &["<TASK>", "the task is empty; say"]),
        (&[" \n\t"], &["<TASK>", "the task is empty"]),
        (&["x", "--timeout", "30"], &["--timeout <DURATION>", "'30'", "90s, 5m or 1h30m"]),
        (&["x", "--idle-timeout", "soon"], &["--idle-timeout", "'soon'", "or 'unlimited'"]),
        (&["x", "--timeout=-5s"], &["--timeout", "'-5s'"]),
        (&["x", "--budget-usd", "NaN"], &["--budget-usd", "'NaN'", "a number from 0"]),
        (&["x", "--budget-usd", "inf"], &["--budget-usd", "'unlimited'"]),
        (&["x", "--budget-usd=-1"], &["--budget-usd", "'-1'"]),
        (&["x", "--max-depth", "many"], &["--max-depth <N>", "not a whole number of that range"]),
        (&["x", "--max-depth", "99999999999"], &["--max-depth <N>", "of that range"]),
        (&["x", "--max-runs=-1"], &["--max-runs", "from 0 (none at all)"]),
        (&["x", "--workspace", "no/such"], &["'--workspace'", "'no/such'", "name a directory"]),
        (&["x", "--workspace", &bad], &["'--workspace'", "name a directory"]),
        (&["x", "--schema", "no/such"], &["'--schema'", "name a file"]),
        (&["x", "--schema", &bad], &["'--schema'", "not a JSON schema: "]),
        (
            &["x", "--model", "gorq:gpt"],
            &["'--model'", "'gorq:gpt'", "'offline', 'script:FILE'", "openai, anthropic"],
        ),
        (&["x", "--model", "Offline"], &["'--model'", "unknown model"]),
        (&["x", "--model", "script:"], &["'--model'", "write script:FILE"]),
        (&["x", "--model", "script:no/such"], &["'--model'", "cannot read no/such"]),
        (&["x", "--model", "script:src"], &["'--model'", "it is a directory"]),
        (&["x", "--allow", "a,b", "--deny", "b"], &["'--deny'", "'b'", "one of them only"]),
        (&["x", "--allow", "a", "--ask", "a"], &["'--ask'", "'a'", "in --allow"]),
        (&["x", "--allow", "a(b"], &["--allow <TOOL>", "the `)` at its end is missing"]),
        (&["x", "--ask-timeout", "unlimited"], &["--ask-timeout <DURATION>", "such as 90s"]),
        (&["x", "--allow", "a,"], &["--allow <TOOL>", "no tool is named"]),
        (&["x", "--tools", "kaos"], &["--tools <SET>", "chaos"]),
        (&["x", "--output", "pdf"], &["--output <FORM>", "jsonl"]),
        (&["x", "--base-url", "y"], &["'--base-url'", "'offline' is at no address", "--model openai:MODEL"]),
        (&["x", "y"], &["unexpected argument 'y'"]),
    ];
    for (args, parts) in cases {
        let message = options(args).unwrap_err();
        for part in *parts {
            assert!(message.contains(part), "{args:?} lacks {part:?}: {message}");
        }
    }
}

/// The help is a contract too. To accept a change: `UPDATE_GOLDEN=1 cargo test help_is_golden`.
#[test]
fn help_is_golden() {
    for name in ["", "run", "script", "plan", "agents", "replay", "verify"] {
        let args = ["anabranch", name, "--help"];
        let help = Cli::try_parse_from(args.iter().filter(|arg| !arg.is_empty())).unwrap_err().to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        let help: String = help.lines().map(|line| format!("{}\n", line.trim_end())).collect();
        let file = format!("tests/it/golden/help{}{name}.txt", if name.is_empty() { "" } else { "-" });
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(&file);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, &help).unwrap();
        }
        let golden = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(help, golden, "{file} differs");
    }
}
