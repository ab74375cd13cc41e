use super::*;

const RULES: Rules = Rules { max_passes: 5, confident_at: None, convergence: None, keeps_best: true };

type Pass = (Option<bool>, Option<f64>, Option<f64>);

/// Which pass counts in the end, and why it is the end.
fn course(rules: Rules, passes: &[Pass]) -> (u32, Option<ExitReason>) {
    let (mut course, mut kept) = (Course::new(rules), 0);
    for (at, (passed, score, confidence)) in passes.iter().enumerate() {
        let pass = u32::try_from(at + 1).unwrap();
        let confidence = confidence.and_then(Confidence::new);
        let record = PassRecord { pass, passed: *passed, score: *score, confidence, ..PassRecord::default() };
        let noted = course.note(record);
        if noted.counts {
            kept = pass;
        }
        if noted.exit.is_some() {
            return (kept, noted.exit);
        }
    }
    (kept, None)
}

fn scores(scores: &[f64]) -> Vec<Pass> {
    scores.iter().map(|score| (Some(false), Some(*score), None)).collect()
}

#[test]
fn the_best_counts_where_there_are_scores_and_the_latest_where_there_are_none() {
    let two = Rules { max_passes: 2, ..RULES };
    let no = (Some(false), None, None);
    let used_up = Some(ExitReason::MaxRefinements);
    assert_eq!(course(two, &[no, no]), (2, used_up));
    assert_eq!(course(two, &scores(&[0.9, 0.2])), (1, used_up));
    assert_eq!(course(two, &scores(&[0.5, 0.5])), (2, used_up));
    assert_eq!(course(Rules { keeps_best: false, ..two }, &scores(&[0.9, 0.2])), (2, used_up));
    // One that passed counts although its score is lower.
    let passed = (Some(true), Some(0.1), None);
    assert_eq!(course(two, &[scores(&[0.9])[0], passed]), (2, Some(ExitReason::Passed)));
    assert_eq!(course(two, &[(None, None, None)]), (1, Some(ExitReason::Passed)));
    assert_eq!(course(RULES, &scores(&[0.1, 0.5, 0.3])), (2, None));
}

#[test]
fn passes_end_when_scores_converge_or_the_agent_is_confident() {
    let rules = Rules { convergence: Some(Convergence::new(3, 0.05).unwrap()), ..RULES };
    assert_eq!(course(rules, &scores(&[0.1, 0.5, 0.52])), (3, None));
    assert_eq!(course(rules, &scores(&[0.1, 0.5, 0.52, 0.51])), (3, Some(ExitReason::Converged)));
    assert_eq!(course(rules, &[(Some(false), None, None); 4]), (4, None));
    let rules = Rules { confident_at: Confidence::new(0.8), ..RULES };
    let sure = |confidence| (Some(false), None, Some(confidence));
    assert_eq!(course(rules, &[sure(0.79), sure(0.8)]), (2, Some(ExitReason::Confident)));
    for (window, spread) in [(1, 0.1), (2, -0.1), (2, f64::NAN)] {
        assert!(Convergence::new(window, spread).is_err());
    }
}
