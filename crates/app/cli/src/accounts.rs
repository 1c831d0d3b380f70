//! `skua user` and `skua token`: the files of the API's users and tokens.

use std::{
    io::{IsTerminal as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use skua_config::{Config, arguments::duration};
use skua_process::watched::read_secret_line;
use skua_server::auth::{
    Role, checked_name,
    tokens::{self, Token, Tokens, new_token},
    users::{self, Proof, User, Users},
};

/// Which file.
#[derive(Args, Debug)]
pub struct FileArguments {
    /// The file [default: from the configuration]
    #[arg(long, value_name = "FILE", global = true)]
    pub file: Option<PathBuf>,
    /// Configuration file [default: /etc/skua.yaml if it exists]
    #[arg(long, value_name = "FILE", env = "SKUA_CONFIG", global = true)]
    pub config: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua user add alice --role admin             asks for the password
  skua user add grafana --role read --password-file secret
  skua user add agent7.example --role admin --certificate

A running `skua run` applies changes within a second; a change ends all logins.")]
pub struct UserArguments {
    #[command(subcommand)]
    pub what: UserCommand,
    #[command(flatten)]
    pub place: FileArguments,
}

#[derive(Subcommand, Debug)]
pub enum UserCommand {
    /// Add a user, or change one
    Add {
        /// Its name
        name: String,
        /// What the user may do
        #[arg(long, value_enum, default_value = "read")]
        role: Role,
        /// File with the user's password, - for standard input [default: ask on the terminal]
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// The user has no password, but a client certificate for this name (subjectAltName)
        #[arg(long, conflicts_with = "password_file")]
        certificate: bool,
    },
    /// List the users
    List,
    /// Remove a user
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  skua token create grafana > token            the token is shown only once
  skua token create deploy --role admin --ends 30d
  skua flows --token-file token

A running `skua run` applies changes within a second.")]
pub struct TokenArguments {
    #[command(subcommand)]
    pub what: TokenCommand,
    #[command(flatten)]
    pub place: FileArguments,
}

#[derive(Subcommand, Debug)]
pub enum TokenCommand {
    /// Make a token and print it
    Create {
        /// Name of the token
        name: String,
        /// What clients with the token may do
        #[arg(long, value_enum, default_value = "read")]
        role: Role,
        /// Time until it expires, like 30d [default: never]
        #[arg(long, value_name = "TIME", value_parser = duration)]
        ends: Option<Duration>,
    },
    /// List the tokens
    List,
    /// Revoke a token
    Revoke {
        /// Name of the token
        name: String,
    },
}

impl FileArguments {
    /// The given file, or the configured one.
    fn path(&self, key: &str, of: impl FnOnce(&Config) -> String) -> anyhow::Result<PathBuf> {
        if let Some(file) = &self.file {
            return Ok(file.clone());
        }
        match of(&Config::load(self.config.as_deref())?) {
            file if file.is_empty() => bail!("no file is configured: set {key}, or give --file"),
            file => Ok(file.into()),
        }
    }
}

/// A file that is locked against changes by others.
struct Editing {
    file: PathBuf,
    /// Its folder, locked.
    folder: std::fs::File,
}

impl Editing {
    fn begin(file: PathBuf) -> anyhow::Result<Self> {
        let parent = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let name = parent.display();
        let folder = std::fs::File::open(parent).with_context(|| format!("cannot open {name}"))?;
        rustix::fs::flock(&folder, rustix::fs::FlockOperation::LockExclusive)
            .with_context(|| format!("cannot lock {name}"))?;
        Ok(Self { file, folder })
    }

    fn exists(&self) -> bool {
        self.file.exists()
    }

    /// Replaces the file atomically: readers get the old or the new content.
    fn write(&self, text: &str) -> anyhow::Result<()> {
        let name = self.file.display();
        let mut fresh = self.file.clone().into_os_string();
        fresh.push(".new");
        let fresh = PathBuf::from(fresh);
        let write = || -> std::io::Result<()> {
            // A leftover may be another user's, or a link to elsewhere.
            match std::fs::remove_file(&fresh) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut out = std::fs::File::options()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&fresh)?;
            if let Ok(old) = std::fs::metadata(&self.file) {
                std::os::unix::fs::fchown(&out, Some(old.uid()), Some(old.gid()))?;
                let mode = old.mode() & 0o640;
                out.set_permissions(std::fs::Permissions::from_mode(mode))?;
            }
            out.write_all(text.as_bytes())?;
            out.sync_all()?;
            std::fs::rename(&fresh, &self.file)?;
            self.folder.sync_all()
        };
        write().with_context(|| format!("cannot write {name}"))
    }
}

/// Prints rows in columns.
fn print_table(rows: &[[String; 3]]) -> anyhow::Result<()> {
    let width = |column: usize| {
        rows.iter()
            .map(|r| r[column].chars().count())
            .max()
            .unwrap_or(0)
    };
    let (first, second) = (width(0), width(1));
    let mut out = std::io::stdout().lock();
    for [a, b, c] in rows {
        writeln!(out, "{a:first$}  {b:second$}  {c}")?;
    }
    Ok(())
}

/// `skua user`.
pub fn user(arguments: &UserArguments) -> anyhow::Result<()> {
    let file = arguments.place.path("api.users", |c| c.api.users.clone())?;
    if let UserCommand::List = arguments.what {
        let row = |u: &User| [u.name.clone(), u.role.name().into(), u.proof.kind().into()];
        let head = ["NAME", "ROLE", "KNOWN BY"].map(str::to_owned);
        let rows = Users::read(&file)?;
        let rows: Vec<_> = std::iter::once(head)
            .chain(rows.0.iter().map(row))
            .collect();
        return print_table(&rows);
    }
    // Before the lock: typing may take long.
    let added = match &arguments.what {
        UserCommand::Add {
            name,
            role,
            password_file,
            certificate,
        } => Some(User {
            name: checked_name(name)?.to_owned(),
            role: *role,
            proof: match certificate {
                true => Proof::Certificate,
                false => users::hash(&new_password(name, password_file.as_deref())?)?,
            },
        }),
        _ => None,
    };
    let editing = Editing::begin(file)?;
    let mut users = match editing.exists() {
        true => Users::read(&editing.file)?,
        false => Users::default(),
    };
    match (&arguments.what, added) {
        (_, Some(user)) => match users.0.iter_mut().find(|u| u.name == user.name) {
            Some(old) => *old = user,
            None => users.0.push(user),
        },
        (UserCommand::Remove { name }, _) => {
            let before = users.0.len();
            users.0.retain(|u| u.name != *name);
            if users.0.len() == before {
                bail!("there is no user \"{name}\" in {}", editing.file.display());
            }
        }
        _ => {}
    }
    editing.write(&users.text())
}

/// `skua token`.
pub fn token(arguments: &TokenArguments) -> anyhow::Result<()> {
    let file = arguments
        .place
        .path("api.tokens", |c| c.api.tokens.clone())?;
    if let TokenCommand::List = arguments.what {
        let now = SystemTime::now();
        let row = |t: &Token| {
            let end = match t.is_over(now) {
                true => format!("{} (over)", t.end_text()),
                false => t.end_text(),
            };
            [t.name.clone(), t.role.name().into(), end]
        };
        let head = ["NAME", "ROLE", "ENDS"].map(str::to_owned);
        let rows = Tokens::read(&file)?;
        let rows: Vec<_> = std::iter::once(head)
            .chain(rows.0.iter().map(row))
            .collect();
        return print_table(&rows);
    }
    let editing = Editing::begin(file)?;
    let mut tokens = match editing.exists() {
        true => Tokens::read(&editing.file)?,
        false => Tokens::default(),
    };
    match &arguments.what {
        TokenCommand::Create { name, role, ends } => {
            if tokens.0.iter().any(|t| t.name == *name) {
                bail!("there is a token \"{name}\" already: revoke it first");
            }
            let text = new_token()?;
            tokens.0.push(Token {
                name: checked_name(name)?.to_owned(),
                role: *role,
                end: ends.map(|ends| SystemTime::now() + ends),
                hash: tokens::hash(&text),
            });
            editing.write(&tokens.text())?;
            writeln!(std::io::stdout(), "{text}")?;
            Ok(())
        }
        TokenCommand::Revoke { name } => {
            let before = tokens.0.len();
            tokens.0.retain(|t| t.name != *name);
            if tokens.0.len() == before {
                bail!("there is no token \"{name}\" in {}", editing.file.display());
            }
            editing.write(&tokens.text())
        }
        TokenCommand::List => Ok(()),
    }
}

fn new_password(name: &str, file: Option<&Path>) -> anyhow::Result<String> {
    if let Some(file) = file {
        return read_secret_line(file);
    }
    if !std::io::stdin().is_terminal() {
        return read_secret_line(Path::new("-"));
    }
    let password = ask(&format!("Password of {name}: "))?;
    if ask("Once more: ")? != password {
        bail!("the two passwords differ");
    }
    Ok(password)
}

/// Prompts on the terminal without echo.
fn ask(prompt: &str) -> anyhow::Result<String> {
    use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
    let stdin = std::io::stdin();
    eprint!("{prompt}");
    let shown = tcgetattr(&stdin)?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Flush, &hidden)?;
    let mut line = String::new();
    let read = stdin.read_line(&mut line);
    tcsetattr(&stdin, OptionalActions::Flush, &shown)?;
    eprintln!();
    read?;
    Ok(line.trim_end_matches(['\r', '\n']).to_owned())
}
