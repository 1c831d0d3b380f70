//! DuckDB over the lake's files.

use std::{
    fmt::Write as _,
    io::{BufWriter, Read as _, Write},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use duckdb::{Config, Connection};
use skua_lake::{Column, Kind, Lake, Location, Table, now_us};

use super::{
    SqlArguments,
    print::{Printer, ROWS},
};
use crate::{
    args::OutputFormat,
    lake::{
        command::{NO_LAKE, configured},
        question::moment,
    },
};

/// Files that are listed may be compacted before they are opened: then all begins anew, so often at most.
const ATTEMPTS: usize = 5;
/// Bytes of a question at most.
const QUESTION: u64 = 1 << 20;

/// A question, and what it may take.
pub struct Question {
    /// A SELECT.
    pub statement: String,
    /// From when on, as people write it.
    pub since: Option<String>,
    /// Until when.
    pub until: Option<String>,
    /// Bytes of memory at most.
    pub memory: u64,
    /// Time at most.
    pub timeout: Duration,
    /// In what form the answer is.
    pub format: OutputFormat,
}

/// What is asked, of which rows.
struct Asked<'a> {
    question: &'a Question,
    statement: &'a str,
    since: i64,
    until: i64,
}

/// `skua sql`.
pub fn run(arguments: &SqlArguments) -> anyhow::Result<()> {
    let mut statement = arguments.statement.clone();
    if statement == "-" {
        statement.clear();
        std::io::stdin()
            .take(QUESTION)
            .read_to_string(&mut statement)
            .context("cannot read the question")?;
    }
    let location = configured(arguments.lake.as_ref(), arguments.config.as_deref())?;
    let question = Question {
        statement,
        since: arguments.since.clone(),
        until: arguments.until.clone(),
        memory: arguments.memory,
        timeout: arguments.timeout,
        format: arguments.print.output,
    };
    let out = BufWriter::new(std::io::stdout());
    let mut printer = Printer::new(question.format, out);
    answer(&location.context(NO_LAKE)?, &question, &mut printer)?;
    if printer.finish()?.1 {
        eprintln!("skua: a table ends after {ROWS} rows: all are in --output csv or json");
    }
    Ok(())
}

/// Asks the lake at a place.
pub fn answer<W: Write>(
    location: &Location,
    question: &Question,
    printer: &mut Printer<W>,
) -> anyhow::Result<()> {
    let now = now_us();
    let time = |text: &Option<String>, otherwise| match text {
        Some(text) => moment(text, now),
        None => Ok(otherwise),
    };
    let asked = Asked {
        question,
        statement: question.statement.trim().trim_end_matches(';'),
        since: time(&question.since, 0)?,
        until: time(&question.until, i64::MAX)?,
    };
    let lake = Lake::open(location)?;
    let directory = lake.location().directory().with_context(|| {
        format!(
            "SQL reads lakes in directories, not {}: `skua flows --since` reads all; docs/lake.md says how other \
             engines do",
            lake.location()
        )
    })?;
    let directory = directory
        .canonicalize()
        .with_context(|| format!("there is no lake at {}", directory.display()))?;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let files = files(&lake, &directory, &asked)?;
        let Err(error) = ask(&directory, &asked, &files, printer) else {
            return Ok(());
        };
        let changed = attempts < ATTEMPTS && files != self::files(&lake, &directory, &asked)?;
        if !changed || printer.has_written() {
            return Err(error);
        }
    }
}

type Files = Vec<(Table, Vec<PathBuf>)>;

fn files(lake: &Lake, directory: &Path, asked: &Asked<'_>) -> anyhow::Result<Files> {
    let mut files = Files::new();
    for table in Table::ALL {
        let paths = lake.paths(table, asked.since, asked.until)?;
        let paths = paths.iter().map(|path| directory.join(path)).collect();
        files.push((table, paths));
    }
    Ok(files)
}

/// A text as SQL writes it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Whoever reads sees this, and no more: not where in our own statement it was, nor how the engine could be set otherwise.
fn told(error: &duckdb::Error) -> anyhow::Error {
    let text = error.to_string();
    if text.starts_with("Out of Memory Error") {
        return anyhow::anyhow!(
            "it needs more memory than it may have: ask for a shorter time (--since, --until), group by fewer columns, \
             or give more (--memory)"
        );
    }
    let lines = text.lines().take_while(|line| !line.starts_with("LINE "));
    let words: Vec<&str> = lines.flat_map(str::split_whitespace).collect();
    anyhow::anyhow!("{}", words.join(" "))
}

/// A table without rows, where there are no files.
fn empty(table: Table) -> String {
    let column = |column: &Column| {
        let kind = match column.kind {
            Kind::Time => "timestamptz",
            Kind::Long => "bigint",
            Kind::Int => "integer",
            Kind::Text => "varchar",
            Kind::Ints => "integer[]",
        };
        format!("null::{kind} as \"{}\"", column.name)
    };
    let columns: Vec<String> = table.columns().iter().map(column).collect();
    format!(
        "select {}, null::date as date, null::bigint as hour where false",
        columns.join(", ")
    )
}

/// A table of the lake as the engine sees it.
fn view(table: Table, files: &[PathBuf], asked: &Asked<'_>) -> String {
    let name = table.name();
    let rows = match files {
        [] => empty(table),
        files => {
            let list: Vec<String> = files.iter().map(|f| quoted(&f.to_string_lossy())).collect();
            let mut rows = format!(
                "select * from read_parquet([{}], hive_partitioning = true, union_by_name = true) where true",
                list.join(", ")
            );
            let time = table.columns()[table.time()].name;
            for (limit, sign) in [(asked.since, ">="), (asked.until, "<")] {
                if (1..i64::MAX).contains(&limit) {
                    let limit = quoted(&skua_lake::rfc3339(limit));
                    let _ = write!(rows, " and \"{time}\" {sign} {limit}::timestamptz");
                }
            }
            rows
        }
    };
    format!("create view {name} as {rows}")
}

/// A connection that can read the lake's directory and nothing else.
fn connect(memory: u64, directory: &Path) -> duckdb::Result<Connection> {
    let config = Config::default()
        .max_memory(&format!("{memory}B"))?
        .enable_autoload_extension(false)?
        .with("autoinstall_known_extensions", "false")?;
    let connection = Connection::open_in_memory_with_flags(config)?;
    let directory = quoted(&directory.to_string_lossy());
    // Nothing is put on disk when memory ends: the question fails.
    connection.execute_batch(&format!(
        "set temp_directory = ''; set allowed_directories = [{directory}]; set enable_external_access = false;"
    ))?;
    Ok(connection)
}

fn ask<W: Write>(
    directory: &Path,
    asked: &Asked<'_>,
    files: &Files,
    printer: &mut Printer<W>,
) -> anyhow::Result<()> {
    let question = asked.question;
    let connection = connect(question.memory, directory).map_err(|error| told(&error))?;
    let interrupt = connection.interrupt_handle();
    let (finished, waits) = mpsc::channel::<()>();
    let timeout = question.timeout;
    let guard = thread::Builder::new()
        .name("skua-sql-time".into())
        .spawn(move || {
            let late = waits.recv_timeout(timeout) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                interrupt.interrupt();
            }
            late
        })
        .context("no thread is to be had")?;
    let answered = (|| {
        let views: Vec<String> = files
            .iter()
            .map(|(table, files)| view(*table, files, asked))
            .collect();
        connection
            .execute_batch(&(views.join(";") + "; set lock_configuration = true;"))
            .map_err(|error| told(&error))?;
        print(&connection, asked.statement, question.format, printer)
    })();
    drop(finished);
    match guard.join() {
        Ok(true) if answered.is_err() => bail!(
            "no answer in {}: ask for a shorter time (--since, --until), or wait longer (--timeout)",
            humantime::format_duration(timeout)
        ),
        _ => answered,
    }
}

fn print<W: Write>(
    connection: &Connection,
    statement: &str,
    format: OutputFormat,
    printer: &mut Printer<W>,
) -> anyhow::Result<()> {
    // The table function takes one SELECT and nothing else: what would write or change settings is refused by the
    // engine's own parser.
    let rows = format!("query({})", quoted(statement));
    let wrapped = match format {
        OutputFormat::Json => format!("select to_json(skua_row)::varchar from {rows} as skua_row"),
        _ => format!("select columns(*)::varchar from {rows}"),
    };
    let mut prepared = connection.prepare(&wrapped).map_err(|error| told(&error))?;
    let mut rows = prepared.query([]).map_err(|error| told(&error))?;
    let names: Vec<String> = rows
        .as_ref()
        .map(|statement| statement.column_names())
        .unwrap_or_default();
    printer.header(&names)?;
    while let Some(row) = rows.next().map_err(|error| told(&error))? {
        let cells: Result<Vec<Option<String>>, _> =
            (0..names.len()).map(|place| row.get(place)).collect();
        if !printer.row(cells.map_err(|error| told(&error))?)? {
            break;
        }
    }
    Ok(())
}
