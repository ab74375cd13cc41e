use super::*;
use crate::tool::Toolset;

#[test]
fn w23_zero_polls_and_the_longest_wait_is_said() {
    assert_eq!(timeout(None), (Duration::from_mins(5), None));
    assert_eq!(timeout(Some(0.0)), (Duration::ZERO, None));
    assert_eq!(timeout(Some(50.9)), (Duration::from_millis(50), None));
    assert_eq!(timeout(Some(900_000.0)), (Duration::from_mins(15), None));
    for above in [900_001.0, 1e300] {
        let (timeout, notice) = timeout(Some(above));
        assert_eq!(timeout, Duration::from_mins(15));
        assert!(notice.unwrap().contains("900000"));
    }
}

#[test]
fn the_status_text_says_for_how_many() {
    let tools = Toolset::new().with(WaitSubtasks::new()).unwrap();
    let text =
        |args: Value| tools.get("wait_subtasks").unwrap().status_text(args.as_object().unwrap()).unwrap();
    assert_eq!(text(json!({})), "Waiting for all subtasks");
    assert_eq!(text(json!({ "ids": ["a"] })), "Waiting for a subtask");
    assert_eq!(text(json!({ "ids": ["a", "b"] })), "Waiting for 2 subtasks");
}
