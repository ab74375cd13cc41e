//! Styled lines as bytes.

use std::io::{self, Write};

use ratatui::backend::IntoCrossterm;
use ratatui::crossterm::queue;
use ratatui::crossterm::style::PrintStyledContent;
use ratatui::style::Style;
use ratatui::text::Line;

/// Writes lines, each with its end; without `colours`, their text alone.
///
/// # Errors
///
/// Those of the writer.
pub fn write_lines(out: &mut impl Write, lines: &[Line<'_>], colours: bool) -> io::Result<()> {
    for line in lines {
        for span in &line.spans {
            let style = line.style.patch(span.style);
            if colours && style != Style::default() {
                queue!(out, PrintStyledContent(style.into_crossterm().apply(&*span.content)))?;
            } else {
                out.write_all(span.content.as_bytes())?;
            }
        }
        out.write_all(b"\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use ratatui::style::Color;
    use ratatui::text::Span;

    use super::*;

    #[test]
    fn colours_are_optional() {
        let line = [Line::from(vec![Span::styled("✓ ", Style::new().fg(Color::Green)), Span::raw("done")])];
        let mut plain = Vec::new();
        write_lines(&mut plain, &line, false).unwrap();
        assert_eq!(plain, "✓ done\n".as_bytes());
        let mut coloured = Vec::new();
        write_lines(&mut coloured, &line, true).unwrap();
        let coloured = String::from_utf8(coloured).unwrap();
        assert!(coloured.ends_with("done\n") && coloured.contains("✓ "), "{coloured:?}");
    }
}
