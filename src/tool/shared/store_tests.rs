use serde_json::json;

use super::super::key::is_name;
use super::*;

fn author() -> Author {
    Author { run_id: RunId::parse("r"), title: "writer".into() }
}

fn put(shared: &SharedResults, namespace: Namespace, name: &str, value: Value) -> Result<Arc<str>, NoRoom> {
    shared.put(namespace, name, "", Ok(value), &author())
}

#[test]
fn no_result_is_replaced_and_each_key_is_unique() {
    let shared = SharedResults::of(&Root::new());
    let keys = ["a", "a", "a-2", "a", "b", "a-2"];
    let keys = keys.map(|name| put(&shared, Namespace::Step, name, json!(name)).unwrap());
    assert_eq!(
        keys.each_ref().map(|key| &**key),
        ["step:a", "step:a-2", "step:a-2-2", "step:a-3", "step:b", "step:a-2-3"]
    );
    // The same name elsewhere is another key.
    assert_eq!(&*put(&shared, Namespace::Input, "a", json!(1)).unwrap(), "input:a");
    assert_eq!(shared.get("step:a-2-2").unwrap().value, json!("a-2"));
    assert_eq!(shared.get("step:c"), None);
    let order: Vec<Arc<str>> = shared.all().iter().map(|result| Arc::clone(&result.key)).collect();
    assert_eq!(order.iter().take(6).collect::<Vec<_>>(), keys.iter().collect::<Vec<_>>());
}

#[test]
fn what_a_key_cannot_have_becomes_a_dash() {
    let shared = SharedResults::of(&Root::new());
    let names = ["agent 1", "a:b/ü\n", "", "  ", &"x".repeat(100), "v1.2_rc-3"];
    let keys: Vec<Arc<str>> =
        names.iter().map(|name| put(&shared, Namespace::Step, name, json!(0)).unwrap()).collect();
    let longest = format!("step:{}", "x".repeat(64));
    let expected =
        ["step:agent-1", "step:a-b--", "step:unnamed", "step:unnamed-2", &longest, "step:v1.2_rc-3"];
    assert_eq!(keys.iter().map(|key| &**key).collect::<Vec<_>>(), expected);
    assert!(keys.iter().all(|key| Namespace::split(key).is_some_and(|(_, name)| is_name(name))));
}

#[test]
fn keys_are_split_at_a_namespace_that_there_is() {
    assert_eq!(Namespace::split("shared:a:b"), Some((Namespace::Shared, "a:b")));
    for text in ["", "a", ":a", "Step:a", "steps:a", "note:a"] {
        assert_eq!(Namespace::split(text), None, "{text}");
    }
    for (at, namespace) in Namespace::ALL.into_iter().enumerate() {
        assert_eq!(namespace.at(), at);
    }
}

#[test]
fn a_namespace_is_full_by_entries_or_by_bytes_and_none_crowds_out_another() {
    let shared = SharedResults::of(&Root::new());
    for at in 0..SharedResults::MAX_ENTRIES {
        put(&shared, Namespace::Shared, "n", json!(at)).unwrap();
    }
    let full = put(&shared, Namespace::Shared, "n", json!(0)).unwrap_err();
    assert_eq!((full.have_entries, full.namespace), (256, Namespace::Shared));
    assert_eq!(
        full.to_string(),
        "there is no room for another shared: result of 16 bytes; a tree has room for 256 results of 2097152 bytes in all"
    );
    assert_eq!(shared.left_out(), 1);

    let large = json!("x".repeat(SharedResults::ENTRY_BYTES));
    let kept = (0..).take_while(|_| put(&shared, Namespace::Task, "big", large.clone()).is_ok()).count();
    assert!((60..=64).contains(&kept), "{kept}");
    // What is small enough still has room; the other namespaces have theirs.
    put(&shared, Namespace::Task, "small", json!(1)).unwrap();
    put(&shared, Namespace::Step, "small", large).unwrap();
    let bytes: usize = shared.all().iter().map(|result| result.bytes).sum();
    assert!(bytes < 3 * SharedResults::MAX_BYTES, "{bytes}");
}

#[test]
fn a_result_that_is_too_large_is_cut_at_a_marker_and_a_failure_is_one() {
    let shared = SharedResults::of(&Root::new());
    put(&shared, Namespace::Step, "text", json!("ä".repeat(SharedResults::ENTRY_BYTES))).unwrap();
    put(&shared, Namespace::Step, "list", json!(vec!["x"; 10_000])).unwrap();
    for key in ["step:text", "step:list"] {
        let result = shared.get(key).unwrap();
        assert!(result.value.as_str().unwrap().contains("…[cut: 32"), "{key}");
        assert!(result.bytes < SharedResults::ENTRY_BYTES + 200);
    }
    let about = format!(" {}\nsecond line", "y".repeat(500));
    shared.put(Namespace::Step, "failed", &about, Err("it broke".into()), &author()).unwrap();
    let failed = shared.get("step:failed").unwrap();
    assert_eq!((failed.is_error, &failed.value), (true, &json!("it broke")));
    assert_eq!(*failed.about, format!("{}…", "y".repeat(120)));
}

#[test]
fn all_threads_that_share_one_name_get_keys_of_their_own() {
    let shared = SharedResults::of(&Root::new());
    let keys: std::collections::HashSet<Arc<str>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let put = |at: usize| put(&shared, Namespace::Shared, "n", json!(at)).unwrap();
                    (0..25).map(put).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(keys.len(), 200);
    assert!(keys.contains("shared:n") && keys.contains("shared:n-200"));
}

#[test]
fn they_end_with_their_root() {
    let (root, other) = (Root::new(), Root::new());
    put(&SharedResults::of(&root), Namespace::Shared, "a", json!(1)).unwrap();
    assert!(SharedResults::of(&other).all().is_empty());
    let kept = Arc::downgrade(&SharedResults::of(&root).0);
    root.end_extensions();
    assert!(kept.upgrade().is_none());
    put(&SharedResults::of(&root), Namespace::Shared, "a", json!(1)).unwrap();
    assert!(SharedResults::of(&root).all().is_empty());
}
