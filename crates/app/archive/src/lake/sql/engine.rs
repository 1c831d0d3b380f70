//! DuckDB over the lake's files.

use std::{
    fmt::Write as _,
    io::{BufWriter, Read as _, Write},
    path::Path,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use duckdb::{Config, Connection};
use skua_lake::{Column, Kind, Lake, Location, Stored, Table, now_us};
use skua_output::OutputFormat;

use crate::lake::{
    NO_LAKE, configured,
    question::moment,
    sql::{
        SqlArguments,
        copies::Copies,
        print::{Printer, ROWS},
    },
};

/// Files that are listed may be compacted before they are opened: then all begins anew, so often at most.
const ATTEMPTS: usize = 5;
/// Bytes of a question at most.
const QUESTION: u64 = 1 << 20;

/// Time at most where more is allowed than a clock has: ten years.
const LONGEST: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);

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
    /// Bytes of a lake in an object store that are copied at most.
    pub copy: u64,
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
    /// When it must have been answered.
    end: Instant,
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
        copy: arguments.copy,
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
    let (now, begin) = (now_us(), Instant::now());
    let time = |text: &Option<String>, otherwise| match text {
        Some(text) => moment(text, now),
        None => Ok(otherwise),
    };
    let asked = Asked {
        question,
        statement: question.statement.trim().trim_end_matches(';'),
        since: time(&question.since, 0)?,
        until: time(&question.until, i64::MAX)?,
        end: begin
            .checked_add(question.timeout)
            .unwrap_or(begin + LONGEST),
    };
    let lake = Lake::open(location)?;
    let mut copies = match location.directory() {
        Some(_) => None,
        None => Some(Copies::open()?),
    };
    let directory = copies.as_ref().map(Copies::directory);
    let directory = directory.or(location.directory()).context(NO_LAKE)?;
    let directory = directory
        .canonicalize()
        .with_context(|| format!("there is no lake at {}", directory.display()))?;
    let mut attempts = 0;
    loop {
        attempts += 1;
        let files = files(&lake, &asked)?;
        let brought = match &mut copies {
            Some(copies) => {
                let files = files.iter().flat_map(|(_, files)| files);
                copies.bring(&lake, files, question.copy, asked.end)
            }
            None => Ok(()),
        };
        let Err(error) = brought.and_then(|()| ask(&directory, &asked, &files, printer)) else {
            return Ok(());
        };
        let changed = attempts < ATTEMPTS && files != self::files(&lake, &asked)?;
        if !changed || printer.has_written() {
            return Err(error);
        }
    }
}

type Files = Vec<(Table, Vec<Stored>)>;

/// Files of each table; where they have to be copied, of those only that the question names.
fn files(lake: &Lake, asked: &Asked<'_>) -> anyhow::Result<Files> {
    let statement = asked.statement.to_ascii_lowercase();
    let copied = lake.location().directory().is_none();
    Table::ALL
        .into_iter()
        .filter(|table| !copied || statement.contains(table.name()))
        .map(|table| Ok((table, lake.stored(table, asked.since, asked.until)?)))
        .collect()
}

/// A text as SQL writes it.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// What a user sees of an error: not where in our own statement it was, nor which settings the engine has.
fn readable(error: &duckdb::Error) -> anyhow::Error {
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
fn view(table: Table, directory: &Path, files: &[Stored], asked: &Asked<'_>) -> String {
    let name = table.name();
    let rows = match files {
        [] => empty(table),
        files => {
            let path = |file: &Stored| quoted(&directory.join(&file.path).to_string_lossy());
            let list: Vec<String> = files.iter().map(path).collect();
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
    let connection = connect(question.memory, directory).map_err(|error| readable(&error))?;
    let interrupt = connection.interrupt_handle();
    let (finished, waits) = mpsc::channel::<()>();
    let end = asked.end;
    let guard = thread::Builder::new()
        .name("skua-sql-time".into())
        .spawn(move || {
            let rest = end.saturating_duration_since(Instant::now());
            let late = waits.recv_timeout(rest) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                interrupt.interrupt();
            }
            late
        })
        .context("no thread is to be had")?;
    let answered = (|| {
        let views: Vec<String> = files
            .iter()
            .map(|(table, files)| view(*table, directory, files, asked))
            .collect();
        connection
            .execute_batch(&(views.join(";") + "; set lock_configuration = true;"))
            .map_err(|error| readable(&error))?;
        print(&connection, asked.statement, question.format, printer)
    })();
    drop(finished);
    match guard.join() {
        Ok(true) if answered.is_err() => bail!(
            "no answer in {}: ask for a shorter time (--since, --until), or wait longer (--timeout)",
            humantime::format_duration(question.timeout)
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
    let mut prepared = connection
        .prepare(&wrapped)
        .map_err(|error| readable(&error))?;
    let mut rows = prepared.query([]).map_err(|error| readable(&error))?;
    let names: Vec<String> = rows
        .as_ref()
        .map(|statement| statement.column_names())
        .unwrap_or_default();
    printer.header(&names)?;
    while let Some(row) = rows.next().map_err(|error| readable(&error))? {
        let cells: Result<Vec<Option<String>>, _> =
            (0..names.len()).map(|place| row.get(place)).collect();
        if !printer.row(cells.map_err(|error| readable(&error))?)? {
            break;
        }
    }
    Ok(())
}
