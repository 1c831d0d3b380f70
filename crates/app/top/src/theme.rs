//! Colours and signs: those of the terminal's own palette, or none; Unicode, or none.

use ratatui::style::{Color, Modifier, Style};

/// Which colours.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Palette {
    /// The terminal's own.
    #[default]
    Terminal,
    /// Light ones, for a dark background.
    Dark,
    /// Dark ones, for a light background.
    Light,
    /// Those that people tell apart who see no red or green.
    Safe,
}

impl Palette {
    /// Accent, bad and good.
    fn colors(self) -> [Color; 3] {
        match self {
            Self::Terminal => [Color::Blue, Color::Red, Color::Green],
            Self::Dark => [Color::LightCyan, Color::LightRed, Color::LightGreen],
            Self::Light => [
                Color::Rgb(0, 70, 160),
                Color::Rgb(170, 0, 0),
                Color::Rgb(0, 110, 0),
            ],
            // After Okabe and Ito: sky blue, vermilion, yellow.
            Self::Safe => [
                Color::Rgb(86, 180, 233),
                Color::Rgb(213, 94, 0),
                Color::Rgb(240, 228, 66),
            ],
        }
    }
}

/// The style of the view. Background and text colour are the terminal's own.
#[derive(Clone, Copy, Debug)]
pub struct Theme {
    /// Which colours.
    pub palette: Palette,
    /// Whether colours may be used.
    pub color: bool,
    /// Whether only ASCII may be used.
    pub ascii: bool,
}

const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const ASCII_BARS: [&str; 9] = [" ", "_", ".", "-", "~", "=", "+", "*", "#"];

impl Theme {
    fn colored(self, color: Color) -> Style {
        if self.color {
            Style::new().fg(color)
        } else {
            Style::new()
        }
    }

    /// Titles.
    pub fn title(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Keys and measured values.
    pub fn accent(self) -> Style {
        self.colored(self.palette.colors()[0])
    }

    /// Errors.
    pub fn bad(self) -> Style {
        self.colored(self.palette.colors()[1])
            .add_modifier(Modifier::BOLD)
    }

    /// Good states.
    pub fn good(self) -> Style {
        self.colored(self.palette.colors()[2])
    }

    /// The selected row.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Outdated or less important text.
    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Numbers as a line of bars, the latest at the right, `width` at most; the maximum has full
    /// height.
    pub fn sparkline(self, numbers: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
        let mut latest: Vec<f64> = numbers.rev().take(width).collect();
        latest.reverse();
        let most = latest.iter().copied().fold(0.0, f64::max);
        let bars = if self.ascii { ASCII_BARS } else { BARS };
        let bar = |number: &f64| {
            let part = if most > 0.0 { number / most * 8.0 } else { 0.0 };
            // Small values stay visible.
            let part = if *number > 0.0 { part.max(1.0) } else { 0.0 };
            bars[(part.round() as usize).min(8)]
        };
        latest.iter().map(bar).collect()
    }

    /// The same as an area of some lines, the highest first.
    pub fn graph(
        self,
        numbers: impl DoubleEndedIterator<Item = f64>,
        width: usize,
        height: usize,
    ) -> Vec<String> {
        let mut latest: Vec<f64> = numbers.rev().take(width).collect();
        latest.reverse();
        let most = latest.iter().copied().fold(0.0, f64::max);
        let bars = if self.ascii { ASCII_BARS } else { BARS };
        let line = |above: usize| {
            let bar = |number: &f64| {
                let part = if most > 0.0 {
                    number / most * (8 * height) as f64
                } else {
                    0.0
                };
                // Small values stay visible.
                let part = if *number > 0.0 { part.max(1.0) } else { 0.0 };
                let below = 8 * (height - 1 - above);
                bars[(part.round() as usize).saturating_sub(below).min(8)]
            };
            latest.iter().map(bar).collect()
        };
        (0..height).map(line).collect()
    }

    /// The branches before a node's name: `last` has for the node and each ancestor whether it is the
    /// last of its siblings.
    pub fn branch(self, last: &[bool], mark: Option<bool>) -> String {
        let mut lines = String::new();
        if let Some((own, above)) = last.split_last() {
            for last in above.iter().skip(1) {
                lines += match (last, self.ascii) {
                    (true, _) => "  ",
                    (false, true) => "| ",
                    (false, false) => "│ ",
                };
            }
            if !above.is_empty() {
                lines += match (own, self.ascii) {
                    (true, true) => "`-",
                    (false, true) => "|-",
                    (true, false) => "└─",
                    (false, false) => "├─",
                };
            }
        }
        lines += match (mark, self.ascii) {
            (Some(true), true) => "- ",
            (Some(false), true) => "+ ",
            (Some(true), false) => "▾ ",
            (Some(false), false) => "▸ ",
            (None, _) => "  ",
        };
        lines
    }

    /// Between parts of a line.
    pub fn dot(self) -> &'static str {
        if self.ascii { " | " } else { " · " }
    }

    /// Greatest or smallest first.
    pub fn order(self, reversed: bool) -> &'static str {
        match (reversed, self.ascii) {
            (false, true) => "v",
            (true, true) => "^",
            (false, false) => "↓",
            (true, false) => "↑",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNICODE: Theme = Theme {
        palette: Palette::Terminal,
        color: true,
        ascii: false,
    };
    const ASCII: Theme = Theme {
        palette: Palette::Terminal,
        color: false,
        ascii: true,
    };

    #[test]
    fn bars_are_as_high_as_their_share() {
        let numbers = [9.0, 0.0, 0.01, 4.0, 8.0];
        assert_eq!(UNICODE.sparkline(numbers.into_iter(), 4), " ▁▄█");
        assert_eq!(ASCII.sparkline(numbers.into_iter(), 4), " _~#");
        assert_eq!(ASCII.sparkline([0.0, 0.0].into_iter(), 4), "  ");
    }

    #[test]
    fn graphs_have_several_lines() {
        let numbers = [16.0, 0.0, 4.0, 8.0, 12.0];
        assert_eq!(UNICODE.graph(numbers.into_iter(), 5, 2), ["█   ▄", "█ ▄██"]);
        assert_eq!(UNICODE.graph(numbers.into_iter(), 2, 1), ["▅█"]);
    }

    #[test]
    fn branches() {
        assert_eq!(ASCII.branch(&[true], Some(true)), "- ");
        assert_eq!(ASCII.branch(&[true, false], None), "|-  ");
        assert_eq!(ASCII.branch(&[true, false, true], Some(false)), "| `-+ ");
        assert_eq!(UNICODE.branch(&[true, true], Some(false)), "└─▸ ");
    }
}
