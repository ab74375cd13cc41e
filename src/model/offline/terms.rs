//! Which terms of a text carry its meaning, and how to search for them.

use regex::Regex;

use super::words;

/// What a task or a query is about.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// What to search for, in the order of the text.
    pub(super) focus: Vec<Term>,
    /// What helps to rank.
    pub(super) context: Vec<Term>,
    /// Whether the text also asks for tests.
    pub(super) wants_tests: bool,
    /// Whether it asks for tests only.
    pub(super) only_tests: bool,
}

impl Terms {
    /// Focus and context.
    pub(super) fn all(&self) -> impl Iterator<Item = &Term> {
        self.focus.iter().chain(&self.context)
    }
}

/// One term.
#[derive(Debug, Clone)]
pub(super) struct Term {
    /// As it stands in the text.
    pub(super) text: String,
    /// The pattern that finds it and its variants: no group that captures, its own case flags.
    pub(super) pattern: String,
    /// The same, compiled.
    pub(super) regex: Regex,
    /// Letters and digits of its stem in lower case: to compare it with the name of a definition.
    pub(super) plain: String,
    /// How much it says, before it is known how often it occurs.
    pub(super) weight: f64,
    /// Terms of one clause belong together: words that follow each other share one.
    pub(super) clause: u32,
    /// Whether it is an ordinary word, not a name.
    pub(super) is_word: bool,
}

/// The weight of quoted text and of names that only code has: nobody writes them by accident.
const NAME: f64 = 3.0;
/// The weight of an ordinary word.
const WORD: f64 = 2.0;
/// The weight of a number: it says more the rarer it is.
const NUMBER: f64 = 2.0;
/// The weight of a word that is everywhere in code.
const WEAK: f64 = 0.8;
/// The weight of a word that is in nearly every file.
pub(super) const WEAKEST: f64 = 0.4;

/// So many terms are looked at; a task that is a whole document names its topic early.
const MOST_TERMS: usize = 16;

/// Of words without meaning only those with so many letters are worth a search: `everything`, not `what`.
const LEAST_LETTERS: usize = 5;

/// A word of at most so many letters has to be found whole.
const SHORT: usize = 3;
const WORD_END: &str = r"(?:s?\b|_|[A-Z])";

/// What stands between the focus of a query and the question that it helps to answer.
pub(super) const FOR: &str = " (for: ";

/// The terms of a task: names and words are searched for, words that are everywhere only if there is nothing else.
pub(super) fn of_task(text: &str) -> Terms {
    let mut terms = Terms::default();
    let mut spare = Vec::new();
    let mut weak = Vec::new();
    for token in tokens(text) {
        // What is quoted is meant, also if it is a word that says nothing elsewhere.
        let plain_word = token.form == Form::Word && token.quoted.is_none();
        let word = token.text.to_lowercase();
        if plain_word && words::asks_for_tests(&word) {
            terms.wants_tests = true;
            spare.push(token);
        } else if plain_word && (words::is_stop(&word) || word.chars().count() < 2) {
            spare.push(token);
        } else if let Some(term) = term(&token) {
            if plain_word && words::is_weak(&word) {
                weak.push(term)
            } else {
                terms.focus.push(term)
            }
            weak.extend(qualifier(&token).as_ref().and_then(self::term));
        }
    }
    distinct(&mut terms.focus, &[]);
    if terms.focus.is_empty() {
        terms.focus = std::mem::take(&mut weak);
        distinct(&mut terms.focus, &[]);
    }
    if terms.focus.is_empty() {
        // Nothing but words without meaning: the longest of them are the best there is.
        spare.retain(|token| token.text.chars().count() >= LEAST_LETTERS);
        spare.sort_by_key(|token| std::cmp::Reverse(token.text.chars().count()));
        terms.focus = spare.iter().filter_map(term).collect();
        distinct(&mut terms.focus, &[]);
        terms.focus.truncate(2);
    }
    terms.context = weak;
    distinct(&mut terms.context, &terms.focus);
    terms
}

/// The terms of a query: what stands in backquotes is searched for, all else helps to rank. A query without
/// backquotes is read as a task.
pub(super) fn of_query(text: &str) -> Terms {
    let (head, question) = text.split_once(FOR).unwrap_or((text, ""));
    let mut terms = of_task(head);
    let named: Vec<Term> =
        tokens(head).iter().filter(|token| token.quoted == Some('`')).filter_map(term).collect();
    terms.only_tests = terms.wants_tests && head.trim_start().to_lowercase().starts_with("tests ");
    if !named.is_empty() {
        let rest = std::mem::replace(&mut terms.focus, named);
        distinct(&mut terms.focus, &[]);
        terms.context.extend(rest);
    }
    let question = of_task(question);
    terms.wants_tests |= question.wants_tests;
    terms.context.extend(question.focus);
    terms.context.extend(question.context);
    distinct(&mut terms.context, &terms.focus);
    terms
}

/// Keeps the first of terms that search for the same, and none that `others` have.
fn distinct(terms: &mut Vec<Term>, others: &[Term]) {
    let mut seen: Vec<String> = others.iter().map(|term| term.pattern.clone()).collect();
    terms.retain(|term| {
        let new = !seen.contains(&term.pattern);
        if new {
            seen.push(term.pattern.clone());
        }
        new
    });
    terms.truncate(MOST_TERMS);
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Form {
    Phrase,
    Name,
    Path,
    Number,
    /// Words with hyphens between: `sub-agents`.
    Compound,
    Word,
}

#[derive(Debug)]
struct Token {
    text: String,
    form: Form,
    quoted: Option<char>,
    clause: u32,
}

/// Splits a text into quoted strings, names, paths, numbers and words.
fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut clause = 0;
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if let Some((quoted, after)) = quotation(rest, tokens.last().is_none() || boundary_before(text, rest))
        {
            clause += 1;
            let form = if quoted.contains(char::is_whitespace) { Form::Phrase } else { form_of(quoted) };
            tokens.push(Token { text: quoted.to_owned(), form, quoted: Some(first), clause });
            clause += 1;
            rest = after;
            continue;
        }
        let end =
            rest.find(|c: char| c.is_whitespace() || matches!(c, '`' | '"' | '“')).unwrap_or(rest.len());
        let (raw, after) = rest.split_at(end.max(first.len_utf8()));
        rest = after;
        for piece in raw.split([',', ';', '(', ')', '[', ']', '{', '}', '<', '>', '|', '=', '…']) {
            push_piece(piece, clause, &mut tokens);
        }
        if raw.ends_with([',', ';', ':', '.', '?', '!', ')']) {
            clause += 1;
        }
    }
    tokens
}

fn push_piece(piece: &str, clause: u32, tokens: &mut Vec<Token>) {
    let piece = piece.trim_matches(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '/' | '-'));
    let piece = piece.trim_end_matches(['.', '-', '/']);
    // Of `user's` and `don't` what stands before the apostrophe is the word.
    let piece = piece.split(['\'', '’']).find(|part| !part.is_empty()).unwrap_or(piece);
    if !piece.contains(char::is_alphanumeric) {
        return;
    }
    let form = form_of(piece);
    let alternatives =
        form == Form::Path && !piece.contains(['.', '_', '-']) && piece.matches('/').count() == 1;
    if alternatives {
        // `read/write` are two words; a path has more to it.
        for word in piece.split('/') {
            tokens.push(Token { text: word.to_owned(), form: form_of(word), quoted: None, clause });
        }
        return;
    }
    tokens.push(Token { text: piece.to_owned(), form, quoted: None, clause });
}

/// The quoted string at the start of `text`, and what follows it. An apostrophe quotes only at the start of a word.
fn quotation(text: &str, at_boundary: bool) -> Option<(&str, &str)> {
    let first = text.chars().next()?;
    let close = match first {
        '`' | '"' => first,
        '“' => '”',
        '\'' if at_boundary => '\'',
        _ => return None,
    };
    let (inner, after) = text.strip_prefix(first)?.split_once(close)?;
    let inner = inner.trim();
    // A quotation over several lines is an accident, and one letter says nothing.
    let useful = inner.chars().count() >= 2 && !inner.contains('\n') && inner.contains(char::is_alphanumeric);
    useful.then_some((inner, after))
}

fn boundary_before(text: &str, rest: &str) -> bool {
    let before = text.len().checked_sub(rest.len()).and_then(|end| text.get(..end)).unwrap_or_default();
    before.chars().next_back().is_none_or(|c| c.is_whitespace() || c == '(')
}

fn form_of(text: &str) -> Form {
    let known_extension = text
        .rsplit_once('.')
        .is_some_and(|(start, extension)| !start.is_empty() && super::lines::is_known_extension(extension));
    let letters = text.trim_start_matches(['-', '.']);
    let upper = letters.chars().filter(|c| c.is_uppercase()).count();
    let mixed = upper >= 2 || letters.chars().skip(1).any(char::is_uppercase);
    if known_extension || text.contains('/') {
        Form::Path
    } else if text.chars().all(|c| c.is_ascii_digit()) {
        Form::Number
    } else if text.contains('-')
        && text.chars().all(|c| c.is_lowercase() || c == '-')
        && !text.starts_with('-')
    {
        Form::Compound
    } else if mixed || text.contains(['_', '-', ':', '.']) || text.chars().any(|c| c.is_ascii_digit()) {
        Form::Name
    } else {
        Form::Word
    }
}

/// Of `JoinHandle::abort` and `os.path` what stands before the last part: it tells which `abort` is meant.
fn qualifier(token: &Token) -> Option<Token> {
    let (before, _) = token
        .text
        .trim_end_matches([':', '.'])
        .rsplit_once([':', '.'])
        .filter(|_| token.form == Form::Name)?;
    let text = before.rsplit([':', '.']).find(|part| part.chars().count() >= 2)?;
    Some(Token { text: text.to_owned(), form: form_of(text), quoted: None, clause: token.clause })
}

fn term(token: &Token) -> Option<Term> {
    let text = token.text.as_str();
    let lower = text.to_lowercase();
    let (pattern, plain, weight) = match token.form {
        Form::Phrase => {
            let words: Vec<String> = text.split_whitespace().map(regex::escape).collect();
            (format!("(?i:{})", words.join(r"\s+")), lower.clone(), NAME)
        }
        Form::Number => (format!(r"\b{text}\b"), lower.clone(), NUMBER),
        Form::Path => {
            let file = text.rsplit('/').next().unwrap_or(text);
            let name = file.rsplit_once('.').map_or(file, |(name, _)| name);
            (name_pattern(&parts(name))?, parts(name).concat(), NAME)
        }
        Form::Name => {
            // Of `tokio::select` and `os.path.join` the last part is the name.
            let last = text.rsplit([':', '.']).find(|part| !part.is_empty())?;
            (name_pattern(&parts(last))?, parts(last).concat(), NAME)
        }
        Form::Compound => {
            let (start, last) = text.rsplit_once('-')?;
            let stem = words::stem(last);
            let mut parts = parts(start);
            parts.push(stem);
            (name_pattern(&parts)?, parts.concat(), WORD)
        }
        Form::Word => {
            let stem = words::stem(&lower);
            let weight = match (token.quoted, words::is_weak(&lower)) {
                (Some(_), _) => NAME,
                (None, true) if words::is_weakest(&lower) => WEAKEST,
                (None, true) => WEAK,
                (None, false) => WORD,
            };
            (word_pattern(&stem), stem, weight)
        }
    };
    if plain.chars().count() < 2 {
        return None;
    }
    let regex = Regex::new(&pattern).ok()?;
    Some(Term {
        text: one_line(text),
        pattern,
        regex,
        plain,
        weight,
        clause: token.clause,
        is_word: matches!(token.form, Form::Word | Form::Compound) && token.quoted.is_none(),
    })
}

/// The parts of a name in lower case: `CancellationToken`, `cancellation_token` and `cancellation-token` have two.
pub(super) fn parts(name: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut before: Option<char> = None;
    let mut chars = name.chars().peekable();
    while let Some(c) = chars.next() {
        let hump = c.is_uppercase()
            && before.is_some_and(|before| {
                !before.is_uppercase() || chars.peek().is_some_and(|next| next.is_lowercase())
            });
        if (hump || !c.is_alphanumeric()) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        if c.is_alphanumeric() {
            part.extend(c.to_lowercase());
        }
        before = Some(c);
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

/// Finds a name in any of its spellings, at the start of a word or as humps of a longer name.
fn name_pattern(parts: &[String]) -> Option<String> {
    let (first, rest) = parts.split_first()?;
    if rest.is_empty() {
        return Some(prefix_pattern(first));
    }
    let spelled = parts.iter().map(|part| regex::escape(part)).collect::<Vec<_>>().join("[-_ ]?");
    let humps: String = parts.iter().map(|part| regex::escape(&hump(part))).collect();
    let short = parts.concat().len() <= SHORT;
    Some(format!(r"(?:(?i:(?:\b|_){spelled})|{humps}){}", if short { WORD_END } else { "" }))
}

fn hump(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect()
}

fn word_pattern(stem: &str) -> String {
    match stem.strip_suffix('y').filter(|rest| rest.len() >= 3 && !rest.ends_with(['a', 'e', 'o', 'u'])) {
        // `retry` and `retries` share `retr`, but so does `retrieve`.
        Some(rest) => at_word_start(rest, "(?i:y|ie[sd]|yi)"),
        None => prefix_pattern(stem),
    }
}

fn prefix_pattern(start: &str) -> String {
    at_word_start(start, "")
}

/// Finds `start` where a word starts: after a boundary, an underscore, or as a hump of a camel-case name.
fn at_word_start(start: &str, end: &str) -> String {
    // Two or three letters begin too many words: they have to be all of one.
    let end = if start.is_ascii() && start.len() <= SHORT && end.is_empty() { WORD_END } else { end };
    let (start, hump) = (regex::escape(start), regex::escape(&hump(start)));
    if start == hump {
        format!("(?i:{start}){end}")
    } else {
        format!(r"(?:(?i:(?:\b|_){start})|{hump}){end}")
    }
}

/// Text that cannot break a line.
pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
#[path = "terms_tests.rs"]
mod tests;
