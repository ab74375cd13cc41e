//! English words: which of them carry no meaning in a question about code, and what their variants share.

/// Words that say nothing about where to look.
const STOP: &str = "\
    isn aren wasn won couldn shouldn wouldn hasn hadn didn weren haven a about above after again all also am an and any are as at be because been before being below best \
    between both but by can cannot code codebase could did do does doesn doing don done down during each \
    either else etc every everything exactly explain find for from further get gets give given go goes good \
    got had happen happening happens has have having he help her here him his how i if in inside into is it \
    its itself just know let like look made make makes many may me might more most much must my need needs \
    no nor not now of off on once one ones only or other our out over own please really same see shall she \
    should show so some something such sure take tell than that the their them then there these they thing \
    things this those through to too under until up upon us use used uses using very via want was way we \
    were what when where whether which while who whole whose why will with within without work working works \
    would you your";

/// Words that are everywhere in code, by what [`stem`] leaves of them: they help to rank, but are searched for only
/// if there is nothing better.
const WEAK: &str = "\
    call chang class contain creat decid declar defin do file folder function handl implement item line live \
    logic method modul name number object pars perform process read return run set start stop stuff struct \
    thing time type valu writ occur appear trigger caus reach care support fail error make search list sourc \
    locat place part program project describ kind ask question main repository repo responsibl respons";

/// Of those, the ones that say least: nearly every file has them.
const WEAKEST: &str = "\
    file item line name number object thing stuff time valu call main";

/// Words that ask for tests.
const TESTS: &str = "\
    test tests tested testing tester covered coverage unittest unittests";

/// Verbs whose past has another stem.
const IRREGULAR: &[(&str, &str)] = &[
    ("written", "writ"),
    ("wrote", "writ"),
    ("sent", "send"),
    ("built", "build"),
    ("thrown", "throw"),
    ("caught", "catch"),
    ("chosen", "choos"),
    ("woken", "wake"),
    ("held", "hold"),
    ("kept", "keep"),
];

/// Variants that no suffix rule finds: the word's beginning, and the form that code uses.
const SHORT_FORMS: &[(&str, &str)] = &[
    ("configur", "config"),
    ("initializ", "init"),
    ("initialis", "init"),
    ("parameter", "param"),
    ("children", "child"),
];

/// Whether a lower-case word carries no meaning here.
pub(super) fn is_stop(word: &str) -> bool {
    has(STOP, word)
}

/// Whether a lower-case word is everywhere in code.
pub(super) fn is_weak(word: &str) -> bool {
    has(WEAK, &stem(word))
}

/// Whether a lower-case word is in nearly every file.
pub(super) fn is_weakest(word: &str) -> bool {
    has(WEAKEST, &stem(word))
}

/// Whether a lower-case word asks for tests.
pub(super) fn asks_for_tests(word: &str) -> bool {
    has(TESTS, word)
}

fn has(words: &str, word: &str) -> bool {
    words.split(' ').any(|other| other == word)
}

/// The beginning that the variants of a lower-case word share: `cancellation` and `cancelled` give `cancel`.
///
/// Light on purpose: what is left is a prefix to search for, so it may be too short by an ending, but must not be
/// a prefix of unrelated words. `-er` and `-or` stay: a waiter is not a wait. Words that are not ASCII stay whole.
pub(super) fn stem(word: &str) -> String {
    if !word.is_ascii() {
        return word.to_owned();
    }
    let irregular = IRREGULAR.iter().find(|(past, _)| *past == word);
    if let Some((_, short)) =
        irregular.or_else(|| SHORT_FORMS.iter().find(|(start, _)| word.starts_with(start)))
    {
        return (*short).to_owned();
    }
    let word = without_plural(word);
    let word = word.strip_suffix("ally").filter(|rest| rest.len() >= 5).unwrap_or(&word);
    // A vowel has to remain, or the suffix was part of the word: `string` is no form of `str`.
    let strip = |suffix: &str, least: usize| {
        word.strip_suffix(suffix)
            .filter(|rest| rest.len() >= least && rest.contains(['a', 'e', 'i', 'o', 'u', 'y']))
    };
    if let Some(rest) = strip("ation", 5).filter(|rest| !rest.ends_with("er")) {
        return undoubled(rest).to_owned();
    }
    if let Some(rest) = strip("ion", 5).filter(|rest| rest.ends_with(['t', 's'])) {
        return rest.to_owned();
    }
    for (suffix, least) in [("able", 5), ("ible", 5), ("ing", 3), ("ed", 4)] {
        if let Some(rest) = strip(suffix, least) {
            return undoubled(rest).to_owned();
        }
    }
    strip("e", 4).unwrap_or(word).to_owned()
}

fn without_plural(word: &str) -> String {
    if let Some(rest) =
        word.strip_suffix("ies").or_else(|| word.strip_suffix("ied")).filter(|rest| rest.len() >= 3)
    {
        return format!("{rest}y");
    }
    if let Some(rest) = word.strip_suffix("es")
        && rest.len() >= 3
        && ["s", "x", "z", "ch", "sh"].iter().any(|end| rest.ends_with(end))
    {
        return rest.to_owned();
    }
    let rest = word.strip_suffix('s').filter(|rest| rest.len() >= 3 && !rest.ends_with(['s', 'u', 'i']));
    rest.unwrap_or(word).to_owned()
}

/// `runn` is `run`; `call` stays, `cancell` is `cancel`; `process` stays.
fn undoubled(word: &str) -> &str {
    let mut ends = word.chars().rev();
    let (Some(last), Some(before)) = (ends.next(), ends.next()) else { return word };
    let doubled = last == before && !matches!(last, 'a' | 'e' | 'i' | 'o' | 'u' | 's' | 'z');
    let keeps = last == 'l' && word.len() < 6;
    if doubled && !keeps { word.strip_suffix(last).unwrap_or(word) } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_share_their_stem() {
        for (words, expected) in [
            ("cancel cancels cancelled canceled cancelling cancellation cancellable", "cancel"),
            ("handle handles handled handling", "handl"),
            ("parse parses parsed parsing", "pars"),
            ("retry retries retried", "retry"),
            ("run runs running", "run"),
            ("call calls called calling", "call"),
            ("waiter waiters", "waiter"),
            ("serialize serializes serialized serialization", "serializ"),
            ("connect connects connected connection connections", "connect"),
            ("generate generated generation", "generat"),
            ("configure configuration configurable", "config"),
            ("match matches matched matching", "match"),
            ("allocation", "alloc"),
        ] {
            for word in words.split(' ') {
                assert_eq!(stem(word), expected, "{word}");
            }
        }
    }

    #[test]
    fn words_that_only_look_like_variants_stay() {
        for word in [
            "string", "class", "status", "analysis", "version", "session", "embed", "bus", "ring", "größe",
            "取消",
        ] {
            assert_eq!(stem(word), word);
        }
    }
}
