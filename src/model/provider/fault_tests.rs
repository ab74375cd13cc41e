use reqwest::header::HeaderValue;

use super::*;

fn kind(status: u16, body: &str) -> ModelErrorKind {
    of_status(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), body.as_bytes()).kind
}

#[test]
fn a_status_says_whether_it_is_worth_another_attempt() {
    use ModelErrorKind as Kind;
    for (status, body, expected) in [
        (401, "", Kind::Auth),
        (403, "{\"error\":{\"message\":\"no\"}}", Kind::Auth),
        (404, "{\"error\":{\"message\":\"model not found\",\"type\":\"not_found_error\"}}", Kind::BadRequest),
        (408, "", Kind::Timeout),
        (409, "", Kind::Server),
        (429, "slow down", Kind::RateLimit),
        (429, "{\"error\":{\"code\":\"insufficient_quota\",\"message\":\"pay\"}}", Kind::Auth),
        (500, "{\"error\":{\"code\":500,\"message\":\"boom\"}}", Kind::Server),
        (
            500,
            "{\"error\":{\"code\":500,\"message\":\"Failed to parse tools: Unsupported tool type\"}}",
            Kind::BadRequest,
        ),
        (503, "<html>", Kind::Server),
        (
            529,
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}",
            Kind::Server,
        ),
        (
            400,
            "{\"error\":{\"type\":\"exceed_context_size_error\",\"message\":\"too long\"}}",
            Kind::ContextLength,
        ),
        (
            400,
            "[{\"error\":{\"code\":400,\"status\":\"INVALID_ARGUMENT\",\"message\":\"bad\"}}]",
            Kind::BadRequest,
        ),
        (301, "", Kind::BadRequest),
    ] {
        assert_eq!(kind(status, body), expected, "{status} {body}");
    }
}

#[test]
fn the_recorded_errors_are_tried_again_only_where_they_may_succeed() {
    let recorded = include_str!("../../../tests/it/captures/errors.json");
    let cases: Vec<Value> = serde_json::from_str(recorded).unwrap();
    let mut seen = 0;
    for case in &cases {
        let status = u16::try_from(case["status"].as_u64().unwrap()).unwrap();
        if status == 200 {
            continue;
        }
        seen += 1;
        let kind = kind(status, case["body"].as_str().unwrap());
        // Every one of them names a fault of the request.
        assert!(!kind.is_retryable(), "{}: {kind}", case["case"]);
    }
    assert!(seen > 20, "{seen}");
}

#[test]
fn the_server_says_when_it_wants_to_be_asked_again() {
    let asked = |name: &'static str, value: &'static str| {
        let mut headers = HeaderMap::new();
        headers.insert(name, HeaderValue::from_static(value));
        retry_after(&headers)
    };
    assert_eq!(asked("retry-after", "1"), Some(Duration::from_secs(1)));
    assert_eq!(asked("retry-after-ms", "250"), Some(Duration::from_millis(250)));
    assert_eq!(asked("retry-after", "-3"), Some(Duration::ZERO));
    assert_eq!(asked("retry-after", "NaN"), None);
    assert_eq!(asked("retry-after", "1e300"), Some(Duration::from_hours(24)));
    assert_eq!(asked("retry-after", "soon"), None);
    // As a date: over by now, and ahead of the server's own clock.
    assert_eq!(asked("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT"), Some(Duration::ZERO));
    let headers =
        [("date", "Fri, 31 Dec 1999 23:59:50 GMT"), ("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")];
    let headers = headers.map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
    assert_eq!(retry_after(&HeaderMap::from_iter(headers)), Some(Duration::from_secs(9)));
}

#[test]
fn a_model_that_takes_no_tools_or_no_images_is_recognised() {
    let explained = |body: &[u8], tools, images| {
        let mut error = of_status(StatusCode::BAD_REQUEST, &HeaderMap::new(), body);
        Holds { tools, images }.explain(&mut error);
        error.message
    };
    let body = br#"{"error":{"message":"registry.ollama.ai/library/gemma:2b does not support tools"}}"#;
    assert!(explained(body, true, true).ends_with("(the model takes no tools: choose another one)"));
    assert!(explained(body, false, true).ends_with("does not support tools"));
    assert!(explained(b"bad schema of a tool", true, true).ends_with("bad schema of a tool"));
    let body = br#"{"error":{"message":"No endpoints found that support image input"}}"#;
    let advice = "(the model takes no images: choose another one, or tools that return none)";
    assert!(explained(body, true, true).ends_with(advice));
    assert!(explained(body, true, false).ends_with("image input"));
}
