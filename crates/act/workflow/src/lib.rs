//! Workflows: a function in JavaScript that uses the API. It runs in QuickJS, with limits of time, memory and depth,
//! and reaches nothing but the requests that it is given.

mod uuid5;

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rquickjs::{
    CatchResultExt as _, CaughtError, Context, Ctx, Exception, Function, Object, Promise, Runtime,
    Value,
    context::EvalOptions,
    function::{Args, Func},
};
use rustix::time::{ClockId, clock_gettime};

/// What scripts can use besides the language.
const LIBRARY: &str = include_str!("library.js");

/// How soon a script that sleeps notices that it must end.
const NAP: Duration = Duration::from_millis(50);

/// What a call may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// From its beginning to its end, also while it sleeps and waits for answers.
    pub time: Duration,
    /// Processor time of the script itself, which ends loops.
    pub processor: Duration,
    /// Bytes of its values.
    pub memory: usize,
    /// Bytes of its stack, which ends recursions.
    pub stack: usize,
    /// Bytes of a source.
    pub source: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(300),
            processor: Duration::from_secs(10),
            memory: 64 << 20,
            stack: 256 << 10,
            source: 256 << 10,
        }
    }
}

/// Why a workflow has no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkflowError {
    /// The source is no function, or the script has thrown; with the line.
    #[error("{0}")]
    Script(String),
    /// A limit ended it.
    #[error("the workflow was ended: {0}")]
    Limit(&'static str),
}

/// Requests of scripts: method, path and body; the body of the answer, or an error.
pub type Requests<'a> = dyn FnMut(&str, &str, &str) -> Result<String, String> + 'a;

/// What a call is about.
pub struct Call<'a> {
    /// Name of the workflow, for messages.
    pub name: &'a str,
    /// Its source: a function.
    pub source: &'a str,
    /// The arguments of that function, as a list in JSON.
    pub parameters: &'a str,
    /// Ends it when it becomes true.
    pub cancel: &'a Arc<AtomicBool>,
}

/// Says what is wrong with a source, without running the function in it.
///
/// # Errors
/// It is too long, or no function.
pub fn check(name: &str, source: &str, limits: &Limits) -> Result<(), WorkflowError> {
    let watch = Watch::new(limits, &Arc::default());
    let (_runtime, context) = engine(limits, &watch)?;
    context.with(|ctx| watch.ended(compile(&ctx, name, source, limits).map(drop)))
}

/// Calls a workflow: what its function returns, as JSON. `log` gets what it prints.
///
/// # Errors
/// It fails, or takes more than it may.
pub fn run(
    call: &Call<'_>,
    limits: &Limits,
    requests: Box<Requests<'static>>,
    log: impl Fn(&str) + 'static,
) -> Result<serde_json::Value, WorkflowError> {
    let watch = Watch::new(limits, call.cancel);
    let (_runtime, context) = engine(limits, &watch)?;
    let text = context.with(|ctx| {
        let done = provide(&ctx, requests, log, watch.clone())
            .catch(&ctx)
            .map_err(|error| said(&error))
            .and_then(|()| compile(&ctx, call.name, call.source, limits))
            .and_then(|function| {
                called(&ctx, &function, call.parameters)
                    .catch(&ctx)
                    .map_err(|error| said(&error))
            });
        watch.ended(done)
    })?;
    serde_json::from_str(&text).map_err(|error| WorkflowError::Script(error.to_string()))
}

/// When a script must end.
#[derive(Clone)]
struct Watch {
    begin: Instant,
    processor: Duration,
    limits: Limits,
    cancel: Arc<AtomicBool>,
    over: Rc<RefCell<Option<&'static str>>>,
}

/// Processor time of this thread.
fn processor() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl Watch {
    fn new(limits: &Limits, cancel: &Arc<AtomicBool>) -> Self {
        Self {
            begin: Instant::now(),
            processor: processor(),
            limits: *limits,
            cancel: cancel.clone(),
            over: Rc::default(),
        }
    }

    /// Whether it must end now.
    fn must_end(&self) -> bool {
        let over = match () {
            () if self.begin.elapsed() > self.limits.time => "it took too long",
            () if processor().saturating_sub(self.processor) > self.limits.processor => {
                "it took too much processor time"
            }
            () if self.cancel.load(Ordering::Relaxed) => "nobody waits for it any more",
            () => return false,
        };
        *self.over.borrow_mut() = Some(over);
        true
    }

    /// The result, with the limit that was behind an error.
    fn ended<T>(&self, done: Result<T, String>) -> Result<T, WorkflowError> {
        let over = self.over.borrow_mut().take();
        done.map_err(|text| match over {
            Some(over) => WorkflowError::Limit(over),
            None if text.contains("out of memory") => {
                WorkflowError::Limit("it took too much memory")
            }
            None if text == NULL => WorkflowError::Limit("it took too much memory, or threw null"),
            None => WorkflowError::Script(text),
        })
    }
}

fn engine(limits: &Limits, watch: &Watch) -> Result<(Runtime, Context), WorkflowError> {
    let failed = |error: rquickjs::Error| WorkflowError::Script(error.to_string());
    let runtime = Runtime::new().map_err(failed)?;
    runtime.set_memory_limit(limits.memory);
    runtime.set_max_stack_size(limits.stack);
    let watch = watch.clone();
    runtime.set_interrupt_handler(Some(Box::new(move || watch.must_end())));
    let context = Context::full(&runtime).map_err(failed)?;
    Ok((runtime, context))
}

/// What QuickJS throws when there is not even memory for an error, but scripts may, too.
const NULL: &str = "null was thrown";

/// What a script has thrown, in one line, with the line of the source.
fn said(error: &CaughtError<'_>) -> String {
    let text = match error {
        CaughtError::Exception(exception) => {
            let message = exception.message().unwrap_or_default();
            let stack = exception.stack().unwrap_or_default();
            // Frames of the library lead to no line that the author knows.
            let frames = stack.lines().map(str::trim);
            let place = frames
                .filter(|frame| !frame.contains("library.js") && !frame.contains("native"))
                .find_map(|frame| {
                    let inner = frame.rsplit_once('(').map_or(frame, |(_, inner)| inner);
                    let inner = inner.trim_start_matches("at ").trim_end_matches(')');
                    let mut parts = inner.rsplitn(3, ':');
                    let (_, line) = (parts.next()?, parts.next()?);
                    line.parse::<u32>().ok()
                });
            match place {
                Some(line) => format!("line {line}: {message}"),
                None => message,
            }
        }
        CaughtError::Value(value) => match value.as_string().and_then(|text| text.to_string().ok())
        {
            Some(text) => format!("thrown: {text}"),
            None if value.is_null() => NULL.to_owned(),
            None => "a value that is no error was thrown".to_owned(),
        },
        CaughtError::Error(error) => error.to_string(),
    };
    text.lines().collect::<Vec<_>>().join(" ")
}

fn options(name: &str) -> EvalOptions {
    let mut options = EvalOptions::default();
    options.strict = false;
    options.filename = Some(name.to_owned());
    options
}

/// The function in a source.
fn compile<'js>(
    ctx: &Ctx<'js>,
    name: &str,
    source: &str,
    limits: &Limits,
) -> Result<Function<'js>, String> {
    if source.len() > limits.source {
        return Err(format!("the source is longer than {} bytes", limits.source));
    }
    let function = source.trim_end().trim_end_matches(';');
    // In the first line, so that lines are those of the source.
    let value: Value<'js> = ctx
        .eval_with_options(format!("({function}\n)"), options(name))
        .catch(ctx)
        .map_err(|error| said(&error))?;
    value
        .into_function()
        .ok_or_else(|| "the source is no function: write function Name(a, b) { … }".to_owned())
}

/// Gives a script the library.
fn provide<'js>(
    ctx: &Ctx<'js>,
    mut requests: Box<Requests<'static>>,
    log: impl Fn(&str) + 'static,
    watch: Watch,
) -> rquickjs::Result<()> {
    let host = Object::new(ctx.clone())?;
    let request = move |ctx: Ctx<'_>, method: String, path: String, body: String| {
        requests(&method, &path, &body).map_err(|error| Exception::throw_message(&ctx, &error))
    };
    host.set(
        "request",
        Function::new(ctx.clone(), rquickjs::function::MutFn::new(request))?,
    )?;
    let sleep = move |ms: f64| {
        let end = Instant::now()
            + Duration::try_from_secs_f64(ms / 1e3)
                .unwrap_or_default()
                .min(watch.limits.time);
        // The next instruction ends a script that must.
        while Instant::now() < end && !watch.must_end() {
            std::thread::sleep(end.saturating_duration_since(Instant::now()).min(NAP));
        }
    };
    host.set("sleep", Func::from(sleep))?;
    host.set(
        "log",
        Function::new(ctx.clone(), move |text: String| log(&text))?,
    )?;
    host.set(
        "uuid5",
        Func::from(|space: String, name: String| uuid5::of(&space, &name)),
    )?;
    let library: Function<'js> = ctx.eval_with_options(LIBRARY, options("library.js"))?;
    library.call::<_, ()>((host,))
}

fn called<'js>(
    ctx: &Ctx<'js>,
    function: &Function<'js>,
    parameters: &str,
) -> rquickjs::Result<String> {
    let parameters: Vec<Value<'js>> = ctx.json_parse(parameters)?.get()?;
    let mut args = Args::new(ctx.clone(), parameters.len());
    args.push_args(parameters)?;
    let value: Value<'js> = function.call_arg(args)?;
    let value = match value.as_promise().cloned() {
        Some(promise) => Promise::finish::<Value<'js>>(&promise)?,
        None => value,
    };
    let text = ctx.json_stringify(value)?;
    // What JSON does not know, as the result of a function without one.
    text.map_or_else(|| Ok("null".into()), |text| text.to_string())
}

#[cfg(test)]
mod tests;
