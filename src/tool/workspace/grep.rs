//! `grep`: lines by what is in them.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::Path;

use grep_matcher::{LineTerminator, Matcher};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, Searcher, SearcherBuilder, Sink, SinkContext, SinkContextKind, SinkMatch,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::closed::left_out;
use super::glob::PathFilter;
use super::report::{Report, capped, count, escaped, shown, size};
use super::root::{Workspace, cannot_read, not_a_file};
use super::stop::{Watched, cancelled};
use super::walk::{Found, Walk};
use crate::tool::ToolReply;

/// Hits in one reply, unless `max_results` says less or more.
pub const GREP_RESULTS: usize = 200;

/// Context lines before and after a hit, at most: to see more, a model should read the file.
pub const GREP_CONTEXT: usize = 20;

/// Characters shown of one line. Longer ones are generated or minified; the window shows the hit.
pub const GREP_LINE_CHARS: usize = 300;

/// Bytes of the largest file that is searched: 16 MiB. Sources are smaller; logs and data belong to other tools.
pub const SEARCH_LIMIT: u64 = 16 * 1024 * 1024;

/// Bytes that a compiled pattern may take, and those that its search may cache: a pattern like `(a{1000}){1000}` must
/// not take the host's memory.
const PATTERN_LIMIT: usize = 10 * 1024 * 1024;

/// Arguments of `grep`.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GrepArgs {
    /// What to search for within a line: a regular expression (Rust syntax), or plain text with `fixed_strings`.
    pub pattern: String,
    /// The file or directory to search, relative to the workspace. Default: the whole workspace.
    pub path: Option<String>,
    /// Only files whose path matches this glob, such as `*.rs` or `src/**/*.py`; with `!` before it, only others.
    pub glob: Option<String>,
    /// Whether upper and lower case are the same. Default: false.
    pub ignore_case: Option<bool>,
    /// Whether the pattern is plain text. Default: false.
    pub fixed_strings: Option<bool>,
    /// Lines to show before and after each hit, up to 20. Default: 0.
    pub context: Option<usize>,
    /// How many hits to show at most. Default: 200.
    #[schemars(range(min = 1))]
    pub max_results: Option<usize>,
}

impl Workspace {
    /// The lines that match, as `path:line:content`, sorted by path and line; with context, those lines as
    /// `path-line-content` and `--` between groups. What was cut or skipped is said in brackets at the end.
    #[must_use]
    pub fn grep(&self, args: &GrepArgs, stop: &dyn Fn() -> bool) -> ToolReply {
        self.try_grep(args, stop).unwrap_or_else(|refusal| refusal)
    }

    fn try_grep(&self, args: &GrepArgs, stop: &dyn Fn() -> bool) -> Result<ToolReply, ToolReply> {
        let matcher = matcher(args)?;
        let filter = args.glob.as_deref().map(|glob| PathFilter::new(self, glob)).transpose()?;
        let (place, metadata) = self.existing(args.path.as_deref().unwrap_or("."))?;
        let mut search = Search::new(self, &matcher, args, stop);
        if metadata.is_file() {
            search.file(place.relative())?;
        } else if !metadata.is_dir() {
            return Err(not_a_file(&place));
        } else {
            let hidden = filter.as_ref().is_some_and(PathFilter::names_hidden);
            let mut walk = Walk::new(self, &place, hidden, stop);
            for found in walk.by_ref() {
                match found {
                    Found::Stopped => return Err(cancelled()),
                    Found::Unreadable(note) => search.unreadable.push(note),
                    Found::File(path) => {
                        let below = path.strip_prefix(place.relative()).unwrap_or(&path);
                        if filter.as_ref().is_none_or(|filter| filter.accepts(&path, below)) {
                            search.file(&path)?;
                        }
                    }
                }
                if search.more {
                    break;
                }
            }
            search.left_out = walk.left_out();
        }
        Ok(search.reply(&args.pattern))
    }
}

/// Compiles the pattern.
fn matcher(args: &GrepArgs) -> Result<RegexMatcher, ToolReply> {
    let invalid = |reason: &str| Err(ToolReply::error("invalid_pattern", reason));
    let plain = args.fixed_strings.unwrap_or(false);
    if args.pattern.is_empty() {
        return invalid("the pattern is empty and would match every line; give the text to search for");
    }
    if args.pattern.contains('\n') {
        return invalid(
            "the pattern contains a line break, but hits are within one line; search for one line of it",
        );
    }
    RegexMatcherBuilder::new()
        .case_insensitive(args.ignore_case.unwrap_or(false))
        .fixed_strings(plain)
        .multi_line(true)
        .crlf(true)
        .size_limit(PATTERN_LIMIT)
        .dfa_size_limit(PATTERN_LIMIT)
        .build(&args.pattern)
        .or_else(|error| {
            let hint = if plain { "" } else { "\nto search for it as plain text, set fixed_strings to true" };
            invalid(&format!("{:?} is not a valid regular expression: {error}{hint}", args.pattern))
        })
}

/// One search through many files.
struct Search<'a> {
    workspace: &'a Workspace,
    matcher: &'a RegexMatcher,
    searcher: Searcher,
    stop: &'a dyn Fn() -> bool,
    context: bool,
    max: usize,
    report: Report,
    hits: usize,
    files_hit: usize,
    files: usize,
    left_out: usize,
    more: bool,
    binary: usize,
    too_large: Vec<String>,
    unreadable: Vec<String>,
    lossy: Vec<String>,
}

impl<'a> Search<'a> {
    fn new(
        workspace: &'a Workspace,
        matcher: &'a RegexMatcher,
        args: &GrepArgs,
        stop: &'a dyn Fn() -> bool,
    ) -> Self {
        let context = args.context.unwrap_or(0).min(GREP_CONTEXT);
        let searcher = SearcherBuilder::new()
            .line_terminator(LineTerminator::crlf())
            .binary_detection(BinaryDetection::quit(0))
            .before_context(context)
            .after_context(context)
            .build();
        Self {
            workspace,
            matcher,
            searcher,
            stop,
            context: context > 0,
            max: args.max_results.unwrap_or(GREP_RESULTS).max(1),
            report: Report::default(),
            hits: 0,
            files_hit: 0,
            files: 0,
            left_out: 0,
            more: false,
            binary: 0,
            too_large: Vec::new(),
            unreadable: Vec::new(),
            lossy: Vec::new(),
        }
    }

    /// Searches one file. What goes wrong with it is noted; only being stopped is an error.
    fn file(&mut self, path: &Path) -> Result<(), ToolReply> {
        let opened = self.workspace.dir().open(path).and_then(|file| Ok((file.metadata()?, file)));
        let (metadata, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.unreadable.push(cannot_read(path, &error));
                return Ok(());
            }
        };
        let shown = shown(path);
        if metadata.len() > SEARCH_LIMIT {
            self.too_large.push(format!(
                "skipped {shown}: {} is above the {} search limit",
                size(metadata.len()),
                size(SEARCH_LIMIT)
            ));
            return Ok(());
        }
        let stopped = Cell::new(false);
        let reader = Watched::new(file, SEARCH_LIMIT, self.stop, &stopped);
        let mut hits = FileHits {
            matcher: self.matcher,
            path: &shown,
            hits_left: self.max.saturating_sub(self.hits),
            room: self.report.room(),
            lines: Vec::new(),
            pending: Vec::new(),
            hits: 0,
            more: false,
            binary: false,
            lossy: false,
        };
        // Groups of different files are separated like those of one file.
        if self.context && !self.report.is_empty() {
            hits.pending.push("--".into());
        }
        let searched = self.searcher.search_reader(self.matcher, reader, &mut hits);
        if stopped.get() {
            return Err(cancelled());
        }
        if let Err(error) = searched {
            self.unreadable.push(cannot_read(path, &error));
        } else if hits.binary {
            // Also when lines before the NUL matched: they are accidents.
            self.binary += 1;
            return Ok(());
        }
        self.files += 1;
        self.files_hit += usize::from(hits.hits > 0);
        self.hits += hits.hits;
        self.more = hits.more;
        for line in &hits.lines {
            self.more |= !self.report.line(line);
        }
        if hits.lossy {
            self.lossy.push(format!("{shown} is not all UTF-8: other bytes are shown as \u{fffd}"));
        }
        Ok(())
    }

    fn reply(mut self, pattern: &str) -> ToolReply {
        let files = |n| count(n, "file", "files");
        if self.more {
            self.report.note(&format!("{} of more hits shown; narrow the pattern or the path", self.hits));
        } else if self.hits == 0 {
            self.report.note(&format!("no hits for \"{}\" in {}", escaped(pattern), files(self.files)));
        }
        self.report.extend(left_out(self.left_out));
        if self.binary > 0 {
            self.report.note(&format!("skipped {}", count(self.binary, "binary file", "binary files")));
        }
        self.report.notes(&self.too_large, |n| {
            format!(
                "skipped {} above the {} search limit",
                count(n, "more file", "more files"),
                size(SEARCH_LIMIT)
            )
        });
        self.report.notes(&self.unreadable, |n| format!("cannot read {n} more"));
        self.report.notes(&self.lossy, |n| format!("{} not all UTF-8", count(n, "more file", "more files")));
        let person = match self.hits {
            0 => format!("no hits in {}", files(self.files)),
            n if self.more => format!("{n} of more hits in {}", files(self.files_hit)),
            n => format!("{} in {}", count(n, "hit", "hits"), files(self.files_hit)),
        };
        ToolReply::ok(self.report.finish()).shown_as(person)
    }
}

/// Collects the hits of one file.
struct FileHits<'a> {
    matcher: &'a RegexMatcher,
    path: &'a str,
    hits_left: usize,
    room: usize,
    lines: Vec<String>,
    /// Separators and lines before a hit, until that hit is certain to be shown.
    pending: Vec<String>,
    hits: usize,
    more: bool,
    binary: bool,
    lossy: bool,
}

impl FileHits<'_> {
    fn format(&mut self, bytes: &[u8], number: Option<u64>, separator: char) -> String {
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let text = String::from_utf8_lossy(bytes);
        // Where the hit begins, in bytes of `text`: as many as the lossy form of what is before it.
        let hit = if separator == ':' && bytes.len() > GREP_LINE_CHARS {
            let start = self.matcher.find(bytes).ok().flatten().map_or(0, |hit| hit.start());
            bytes.get(..start).map_or(0, |before| String::from_utf8_lossy(before).len())
        } else {
            0
        };
        let (number, shown) = (number.unwrap_or(0), window(&text, hit));
        self.lossy |= matches!(text, Cow::Owned(_)) && shown.contains('\u{fffd}');
        format!("{}{separator}{number}{separator}{shown}", self.path)
    }

    /// Adds the pending lines and this one, unless there is no room for all of them.
    fn push(&mut self, line: String) -> bool {
        let pending: usize = self.pending.iter().map(|line| line.len() + 1).sum();
        let needed = pending + line.len() + 1;
        let fits = needed <= self.room;
        if fits {
            self.room -= needed;
            self.lines.append(&mut self.pending);
            self.lines.push(line);
        }
        self.more |= !fits;
        fits
    }
}

impl Sink for FileHits<'_> {
    type Error = std::io::Error;

    fn matched(&mut self, _: &Searcher, hit: &SinkMatch<'_>) -> Result<bool, Self::Error> {
        if self.hits_left == 0 {
            self.more = true;
            return Ok(false);
        }
        let line = self.format(hit.bytes(), hit.line_number(), ':');
        let fits = self.push(line);
        self.hits += usize::from(fits);
        self.hits_left -= usize::from(fits);
        Ok(fits)
    }

    fn context(&mut self, _: &Searcher, context: &SinkContext<'_>) -> Result<bool, Self::Error> {
        let line = self.format(context.bytes(), context.line_number(), '-');
        if matches!(context.kind(), SinkContextKind::Before) {
            self.pending.push(line);
            return Ok(true);
        }
        Ok(self.push(line))
    }

    fn context_break(&mut self, _: &Searcher) -> Result<bool, Self::Error> {
        self.pending.push("--".into());
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> Result<bool, Self::Error> {
        self.binary = true;
        Ok(false)
    }
}

/// The part of a line that is shown: from its beginning, or around a hit that would be cut off.
fn window(text: &str, hit: usize) -> String {
    let before = text.get(..hit).unwrap_or_default();
    // A third of the window for what is before the hit.
    let lead = GREP_LINE_CHARS / 3;
    let skipped = before.chars().count();
    if skipped < GREP_LINE_CHARS - lead {
        return capped(text, GREP_LINE_CHARS).into_owned();
    }
    let rest: String = text.chars().skip(skipped - lead).collect();
    format!("…{}", capped(&rest, GREP_LINE_CHARS - 1))
}

#[cfg(test)]
#[path = "grep_tests.rs"]
mod tests;
