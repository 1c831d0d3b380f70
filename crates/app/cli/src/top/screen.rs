//! The terminal: set up, drawn on, and always restored.

use std::{
    io::{self, Write as _},
    sync::Once,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use skua_top::{
    app::App,
    ratatui::{
        Terminal,
        backend::CrosstermBackend,
        crossterm::{
            cursor::Show,
            event::{DisableMouseCapture, EnableMouseCapture},
            execute,
            terminal::{
                EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
            },
        },
    },
};

/// Longest text for the clipboard, in bytes: terminals limit it.
const LONGEST_COPY: usize = 48 << 10;

/// The terminal while the view runs.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<io::BufWriter<io::Stdout>>>,
}

fn restore() {
    // If it cannot be restored, the terminal no longer exists.
    let _ = execute!(
        io::stdout(),
        DisableMouseCapture,
        LeaveAlternateScreen,
        Show
    );
    let _ = disable_raw_mode();
}

/// Restores the terminal on a panic, so that its message is readable.
fn restore_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
    });
}

impl Screen {
    /// Sets up the terminal.
    pub fn enter(mouse: bool) -> anyhow::Result<Self> {
        restore_on_panic();
        enable_raw_mode().context("cannot read keys from the terminal")?;
        let mut entered = execute!(io::stdout(), EnterAlternateScreen);
        if mouse {
            entered = entered.and_then(|()| execute!(io::stdout(), EnableMouseCapture));
        }
        // A screenful in one piece.
        let out = io::BufWriter::with_capacity(64 << 10, io::stdout());
        let terminal = entered.and_then(|()| Terminal::new(CrosstermBackend::new(out)));
        match terminal {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore();
                Err(error).context("cannot draw on the terminal")
            }
        }
    }

    /// Draws the state.
    pub fn draw(&mut self, app: &mut App) -> anyhow::Result<()> {
        self.terminal
            .draw(|frame| skua_top::draw(frame, app))
            .context("cannot draw on the terminal")?;
        Ok(())
    }

    /// Puts a text into the clipboard (OSC 52 of xterm's control sequences).
    pub fn copy(&mut self, text: &str) -> anyhow::Result<()> {
        if text.len() <= LONGEST_COPY {
            let out = self.terminal.backend_mut();
            write!(out, "\x1b]52;c;{}\x1b\\", STANDARD.encode(text))?;
            io::Write::flush(out)?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}
