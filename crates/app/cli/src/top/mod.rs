//! `skua top`: shows the data of a running `skua run`, or of one of its own, in the terminal.

mod events;
mod log;
mod own;
mod poll;
mod screen;

use std::{
    io::IsTerminal as _,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde_json::Value;
use skua_client::Client;
use skua_config::arguments::{AnalyzerArguments, CaptureArguments};
use skua_top::{
    app::{App, Effect},
    make::Make,
    ratatui::crossterm::event::{self, Event, KeyEvent, KeyEventKind, MouseEvent},
    theme::{Palette, Theme},
    view::{Answer, Failure, Request},
};

use crate::top::{poll::Poller, screen::Screen};

pub use crate::top::log::writer;

/// Inputs that wait to be shown; beyond that senders block.
const WAITING: usize = 4096;
/// Longest time without an update.
const TICK: Duration = Duration::from_secs(1);
/// Least time between two updates of the screen.
const PAUSE: Duration = Duration::from_millis(50);

/// When to use colours.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    /// Unless NO_COLOR is set
    Auto,
    /// Even if NO_COLOR is set
    Always,
    /// No
    Never,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua top                                        from the running `skua run`; without one it captures itself
  skua top --interface eth0                       captures here, even while `skua run` runs
  skua top --analyzer https://skua.example:8082 --ca-cert ca.crt --token-file top.token

Keys: 1-7 views, / filter, s sort, Enter details, c capture, t tap, ? all of them, q quit.
docs/top.md explains it.")]
pub struct TopArguments {
    #[command(flatten)]
    pub capture: CaptureArguments,
    #[command(flatten)]
    pub analyzer: AnalyzerArguments,
    /// When to use colours, from the terminal's palette
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    pub color: When,
    /// Which colours: the terminal's, light ones for a dark background, dark ones for a light one, or some that
    /// people tell apart who see no red or green
    #[arg(long, value_enum, default_value = "terminal", value_name = "NAME")]
    pub theme: Colors,
    /// Draw with ASCII characters only; the default in locales without UTF-8
    #[arg(long)]
    pub ascii: bool,
    /// Leave the mouse to the terminal, which then selects text
    #[arg(long)]
    pub no_mouse: bool,
    /// Time between requests
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
}

/// Colours of the view.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Colors {
    Terminal,
    Dark,
    Light,
    Safe,
}

fn interval(text: &str) -> Result<Duration, String> {
    match skua_config::arguments::duration(text)? {
        interval if (1..=3600).contains(&interval.as_secs()) && interval.subsec_nanos() == 0 => {
            Ok(interval)
        }
        _ => Err("whole seconds from 1s to 1h".into()),
    }
}

/// Input of the view.
enum Input {
    Key(KeyEvent),
    Mouse(MouseEvent),
    Resized,
    Answered(Request, Result<Answer, Failure>),
    Made(Make, Result<Value, String>),
    Event(events::Event),
    /// A signal, or our own capture has ended.
    End(anyhow::Result<()>),
}

type Sender = SyncSender<Input>;

/// Whether the locale supports UTF-8.
fn takes_unicode(variable: impl Fn(&str) -> Option<String>) -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .filter_map(variable)
        .find(|value| !value.is_empty());
    let locale = locale.unwrap_or_default().to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

fn appearance(arguments: &TopArguments, variable: impl Fn(&str) -> Option<String>) -> Theme {
    let set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    let dumb = variable("TERM").is_some_and(|term| term == "dumb" || term.starts_with("vt"));
    Theme {
        palette: match arguments.theme {
            Colors::Terminal => Palette::Terminal,
            Colors::Dark => Palette::Dark,
            Colors::Light => Palette::Light,
            Colors::Safe => Palette::Safe,
        },
        color: match arguments.color {
            When::Auto => !set("NO_COLOR") && !dumb,
            When::Always => true,
            When::Never => false,
        },
        ascii: arguments.ascii || !takes_unicode(variable),
    }
}

/// `skua top`.
pub fn top(arguments: &TopArguments) -> anyhow::Result<()> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        bail!(
            "`skua top` needs a terminal; `skua flows`, `skua sockets` and `skua services` print tables"
        );
    }
    let theme = appearance(arguments, |name| std::env::var(name).ok());
    skua_top::ratatui::crossterm::style::force_color_output(theme.color);
    let (sender, inbox) = sync_channel(WAITING);
    let own;
    let (analyzer, note) = match own::analyzer(arguments, &sender)? {
        None => (&arguments.analyzer, None),
        Some(started) => {
            own = started;
            (&own.analyzer, Some(own.note.clone()))
        }
    };
    let client = Client::connect(analyzer)?
        .with_context(|| format!("nothing answers at {} any longer", analyzer.address))?;
    let client = Arc::new(client.with_limit(poll::LONGEST));
    let poller = Poller::start(client.clone(), sender.clone())?;
    wait_for_signals(sender.clone())?;
    events::follow(analyzer, &sender)?;
    let mut app = App::new(&analyzer.address, theme);
    app.message = note.map(|note| (note, false));
    app.interval = arguments.interval.as_secs();
    app.zone = ahead_of_utc;
    let screen = Screen::enter(!arguments.no_mouse)?;
    read_keys(sender.clone())?;
    let shown = Shown {
        app,
        poller,
        client,
        sender,
        begin: Instant::now(),
    };
    shown.run(screen, &inbox)
}

/// Sends keys and changes of size.
fn read_keys(sender: Sender) -> anyhow::Result<()> {
    let keys = move || {
        loop {
            let input = match event::read() {
                Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Input::Key(key),
                Ok(Event::Mouse(mouse)) => Input::Mouse(mouse),
                Ok(Event::Resize(..)) => Input::Resized,
                Ok(_) => continue,
                Err(error) => Input::End(Err(error).context("cannot read from the terminal")),
            };
            let over = matches!(input, Input::End(_));
            if sender.send(input).is_err() || over {
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("keys".into())
        .spawn(keys)?;
    Ok(())
}

/// Sends an end on a signal.
fn wait_for_signals(sender: Sender) -> anyhow::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM])?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            if [SIGINT, SIGTERM].contains(&signal) {
                own::note_signal();
            }
            // This fails only if the view has ended.
            let _ = sender.send(Input::End(Ok(())));
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)?;
    Ok(())
}

/// Seconds that the clock of this terminal's user is ahead of UTC at a time.
fn ahead_of_utc(second: i64) -> i32 {
    let at = jiff::Timestamp::from_second(second).unwrap_or_default();
    jiff::tz::TimeZone::system().to_offset(at).seconds()
}

/// The time of day.
fn time_of_day() -> String {
    jiff::Zoned::now().strftime("%H:%M:%S").to_string()
}

/// Writes a new file in the working directory; returns its name.
fn export(name: &str, kind: &str, text: &str) -> std::io::Result<String> {
    use std::io::Write as _;
    let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    for more in ["", "-2", "-3", "-4"] {
        let path = format!("skua-{name}-{stamp}{more}.{kind}");
        match std::fs::File::create_new(&path) {
            Ok(mut file) => {
                file.write_all(text.as_bytes())?;
                return Ok(path);
            }
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(std::io::ErrorKind::AlreadyExists.into())
}

/// A running view.
struct Shown {
    app: App,
    poller: Poller,
    client: Arc<Client>,
    sender: Sender,
    begin: Instant,
}

impl Shown {
    /// Shows inputs until the user quits.
    fn run(mut self, mut screen: Screen, inbox: &Receiver<Input>) -> anyhow::Result<()> {
        loop {
            screen.draw(&mut self.app)?;
            // The number of rows is known after drawing.
            self.poller.set_requests(self.app.requests());
            let drawn = Instant::now();
            loop {
                let input = match inbox.recv_timeout(TICK) {
                    Ok(input) => input,
                    Err(RecvTimeoutError::Timeout) => {
                        let before = self.app.unreachable.is_some();
                        self.update_clock();
                        if self.app.unreachable.is_some() != before {
                            break;
                        }
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                };
                self.update_clock();
                // The effect of a key is shown at once.
                let hurry = matches!(
                    input,
                    Input::Key(_) | Input::Mouse(_) | Input::Resized | Input::Made(..)
                );
                if let Some(end) = self.handle_input(input, &mut screen)? {
                    return end;
                }
                if hurry {
                    break;
                }
                std::thread::sleep(PAUSE.saturating_sub(drawn.elapsed()));
                // All waiting inputs are shown at once.
                for _ in 0..WAITING {
                    let Ok(input) = inbox.try_recv() else { break };
                    if let Some(end) = self.handle_input(input, &mut screen)? {
                        return end;
                    }
                }
                break;
            }
        }
    }

    fn update_clock(&mut self) {
        self.app.now = time_of_day();
        self.app.tick(self.begin.elapsed());
    }

    /// Does what an input means; returns how all ends, when it does.
    fn handle_input(
        &mut self,
        input: Input,
        screen: &mut Screen,
    ) -> anyhow::Result<Option<anyhow::Result<()>>> {
        match input {
            Input::Key(key) => {
                let effect = self.app.key(key);
                if effect == Some(Effect::Quit) {
                    return Ok(Some(Ok(())));
                }
                self.carry_out(effect, screen)?;
            }
            Input::Mouse(mouse) => {
                let effect = self.app.mouse(mouse);
                self.carry_out(effect, screen)?;
            }
            Input::Resized => {}
            Input::Answered(request, answer) => {
                self.app
                    .handle_answer(&request, answer, self.begin.elapsed());
            }
            Input::Made(make, done) => self.app.made(&make, done),
            Input::Event(event) => {
                let [kind, name, what] =
                    [&event.kind, &event.name, &event.what].map(String::as_str);
                self.app.event(event.event, kind, name, what);
            }
            Input::End(end) => return Ok(Some(end)),
        }
        for line in log::drain() {
            self.app.event("log", "", "", &line);
        }
        Ok(None)
    }

    /// Does what a key or a click asks for.
    fn carry_out(&mut self, effect: Option<Effect>, screen: &mut Screen) -> anyhow::Result<()> {
        match effect {
            None | Some(Effect::Quit) => {}
            Some(Effect::Copy(text)) => screen.copy(&text)?,
            Some(Effect::Make(make)) => self.make(make)?,
            Some(Effect::Export { name, kind, text }) => {
                self.app.message = Some(match export(name, kind, &text) {
                    Ok(path) => (format!("written to {path}"), false),
                    Err(error) => (format!("cannot write the rows here: {error}"), true),
                });
            }
        }
        Ok(())
    }

    /// Makes a capture or a tap, without holding up the view.
    fn make(&self, make: Make) -> anyhow::Result<()> {
        let (client, sender) = (self.client.clone(), self.sender.clone());
        let work = move || {
            let ttl = Duration::from_secs(skua_top::make::MINUTES * 60);
            let headers = [("X-Resource-TTL", ttl.as_nanos().to_string())];
            let made = client.create(make.path(), &headers, &make.body());
            let made = made.map_err(|error| skua_output::one_line(&error));
            let _ = sender.send(Input::Made(make, made));
        };
        std::thread::Builder::new()
            .name("make".into())
            .spawn(work)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_decides_on_unicode() {
        let with = |pairs: &'static [(&str, &str)]| {
            takes_unicode(|name| {
                let found = pairs.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(with(&[("LANG", "de_DE.UTF-8")]));
        assert!(with(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]));
        assert!(!with(&[("LC_ALL", "C"), ("LANG", "de_DE.UTF-8")]));
        assert!(!with(&[]));
    }
}
