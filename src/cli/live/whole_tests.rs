//! The final picture, as text.

use serde_json::json;

use super::super::super::sample::{Sample, two_children, whole};
use super::*;

fn shown(tree: &RunTree, columns: usize) -> String {
    final_lines(tree, columns).iter().map(|line| format!("{line}\n")).collect()
}

#[test]
fn each_run_has_its_line() {
    assert_eq!(
        shown(&whole().tree(), usize::MAX),
        "\
✓ find where cancellation is handled (worker) · 2.0s · 1.5k tokens · 2 calls
├ ✓ cancel (worker) · 0.6s · 1 call
└ ✗ abort (worker) · 1.0s · 1 call · failed: nothing found
3 runs · 1.5k tokens · $0.0123 · 2.0s
"
    );
    assert_eq!(shown(&RunTree::new(), 80), "");
}

#[test]
fn what_the_log_does_not_end_is_interrupted() {
    assert_eq!(
        shown(&two_children().tree(), 70),
        "\
! find where cancellatio… · 1.4s · 1.5k tokens · 2 calls · interrupted
├ ✓ cancel (worker) · 0.6s · 1 call
└ ! abort (worker) · 0.7s · 1 call · interrupted
2 of 3 runs live · 1.5k tokens · $0.0123 · 1.4s
"
    );
}

#[test]
fn many_siblings_are_summed_up_and_what_failed_is_listed() {
    let mut log = Sample::default();
    log.start("root", None, "many");
    for n in 0..1000 {
        let run = format!("c{n}");
        log.start(&run, Some(("root", None)), &run);
        if n == 900 {
            log.end(&run, "failed", "no")
        } else {
            log.complete(&run, json!(n))
        };
    }
    let text = shown(&log.tree(), 80);
    assert_eq!(text.lines().count(), 1 + 50 + 1 + 1 + 1, "{text}");
    assert!(text.contains("├ ✗ c900 (worker) · 0.1s · failed: no\n"), "{text}");
    assert!(text.contains("└ … 949 more: 949 completed\n"), "{text}");
}

#[test]
fn a_chain_deeper_than_any_stack_is_printed() {
    let mut log = Sample::default();
    log.start("root", None, "root");
    let mut above = "root".to_owned();
    for n in 1..2000 {
        let run = format!("c{n}");
        log.start(&run, Some((&above, None)), "level");
        above = run;
    }
    let text = shown(&log.tree(), usize::MAX);
    assert_eq!(text.lines().count(), 2001);
    assert!(text.contains("└ [depth 1999] ! level"), "{text}");
    assert!(text.lines().all(|line| line.len() < 200));
}
