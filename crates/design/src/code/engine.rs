//! One QuickJS engine: a runtime with its own context, limited in time, memory and stack.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use isobar_model::json::{Json, RawJson};
use isobar_model::time::Clock;
use rquickjs::context::{EvalOptions, intrinsic};
use rquickjs::function::{Args, This};
use rquickjs::object::Filter;
use rquickjs::{Coerced, Context, Ctx, FromJs, Function, Object, Persistent, Runtime, Value};

use super::memory::{EngineAllocator, MEMORY_BYTES_MAX, Over, Watch, processor_time};
use super::script::{Script, Survey, names_buffer};
use super::{Answer, Failure, Uplink};
use crate::value::TEXT_BYTES_MAX;

/// Elapsed time below which processor time, which is at most as much, is not read: that is a system call.
const NOT_WORTH_A_LOOK: Duration = Duration::from_micros(100);
/// Longest message of an exception, in characters.
const EXCEPTION_CHARS_MAX: usize = 1_000;
/// First script to run; see its comments.
const PRELUDE: &str = include_str!("prelude.js");
/// Second script to run; see its comments.
const DATES: &str = include_str!("dates.js");
/// Third script, run for code that names `Buffer`; see its comments.
const BUFFER: &str = include_str!("buffer.js");

/// Features of the engine besides the language itself.
type Offered = (
    intrinsic::Date,
    intrinsic::Eval,
    intrinsic::RegExpCompiler,
    intrinsic::RegExp,
    intrinsic::Json,
    intrinsic::MapSet,
    intrinsic::TypedArrays,
    intrinsic::Promise,
);

/// An engine. Fields are dropped in order: values before the context that owns them.
pub(crate) struct Engine {
    /// The wrapped code: calling it runs the top level and returns the function of the codec.
    load: Option<Persistent<Function<'static>>>,
    call: Persistent<Function<'static>>,
    glue: Persistent<Object<'static>>,
    context: Context,
    runtime: Runtime,
    watch: Rc<Watch>,
}

/// Result of a trial run of code.
pub(crate) struct Probe {
    pub(crate) found: bool,
    pub(crate) changes_built_ins: bool,
}

impl Engine {
    /// Makes an engine for this code, with built-in objects that are still mutable.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let watch = Rc::new(Watch::new());
        let runtime = Runtime::new_with_alloc(EngineAllocator::new(Rc::clone(&watch))).map_err(unavailable)?;
        let seen = Rc::clone(&watch);
        runtime.set_interrupt_handler(Some(Box::new(move || seen.interrupts())));
        let context = Context::custom::<Offered>(&runtime).map_err(unavailable)?;
        let (glue, call) = context
            .with(|ctx| {
                watch.watches(&ctx);
                let glue: Object<'_> = ctx.eval(PRELUDE)?;
                ctx.eval::<(), _>(DATES)?;
                if names_buffer(text) {
                    ctx.eval::<(), _>(BUFFER)?;
                }
                let call: Function<'_> = glue.get("call")?;
                Ok((Persistent::save(&ctx, glue), Persistent::save(&ctx, call)))
            })
            .map_err(unavailable)?;
        Ok(Self { load: None, call, glue, context, runtime, watch })
    }

    /// Runs a closure in the engine, limited to a time from `begin` on; the error says why it failed.
    fn bounded<T>(
        &self,
        begin: Duration,
        time: Duration,
        work: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<T>,
    ) -> Result<T, String> {
        self.bounded_in(&self.context, begin, time, work)
    }

    /// Runs a closure as [`Self::bounded`] does, in another context.
    fn bounded_in<T>(
        &self,
        context: &Context,
        begin: Duration,
        time: Duration,
        work: impl for<'js> FnOnce(&Ctx<'js>) -> rquickjs::Result<T>,
    ) -> Result<T, String> {
        self.watch.bound(begin, time);
        let done = context.with(|ctx| work(&ctx).map_err(|error| self.exception_message(&ctx, &error)));
        // Code that was refused a block may have continued without it.
        match self.watch.free() {
            None => done,
            Some(Over::Late) => Err(format!("takes longer than {} ms", time.as_millis())),
            Some(Over::Full) => Err(format!("takes more than {} MiB of memory", MEMORY_BYTES_MAX >> 20)),
        }
    }

    fn exception_message(&self, ctx: &Ctx<'_>, error: &rquickjs::Error) -> String {
        let thrown = ctx.catch();
        if self.watch.is_over() {
            return "was ended".to_owned();
        }
        if !error.is_exception() {
            return "gives what cannot be read".to_owned();
        }
        // Converting it to text may run code again; the time limit still applies.
        let mut message = message_of(ctx, &thrown).unwrap_or_else(|| "failed".to_owned());
        if let Some((at, _)) = message.char_indices().nth(EXCEPTION_CHARS_MAX) {
            message.truncate(at);
        }
        not_run(&message)
    }

    /// Checks that the text is a complete script, so that it cannot escape its wrapper, and returns what its top level
    /// declares. Runs nothing of it.
    pub(crate) fn survey(&self, text: &str, time: Duration) -> Result<Survey, String> {
        // In a separate context, because the names stay in it.
        let context = Context::custom::<Offered>(&self.runtime).map_err(unavailable)?;
        let surveyed = self.bounded_in(&context, processor_time(), time, |ctx| {
            // `with` is a syntax error in strict code, thrown before anything runs.
            let with = format!("throw null;(function () {{{text}\n;with({{}});}})");
            let is_strict = text.contains("use strict")
                && ctx.eval_with_options::<Value<'_>, _>(with, global()).is_err()
                && !ctx.catch().is_null();
            let strict = if is_strict { "'use strict';" } else { "" };
            let names = declared(ctx, &format!("{strict}throw null;{text}"))?;
            Ok(names.map(|names| Survey { names, is_strict }))
        })?;
        surveyed.map_err(|message| message.map_or_else(|| "is no JavaScript".to_owned(), |message| not_run(&message)))
    }

    /// Returns true if there is a built-in object of one of these names.
    pub(crate) fn has_any_of(&self, names: &[String], time: Duration) -> Result<bool, String> {
        self.bounded(processor_time(), time, |ctx| {
            let there = own_names(&ctx.globals())?;
            Ok(names.iter().any(|name| there.contains(name)))
        })
    }

    /// Adds the names that the script shares to the global object, permanently.
    pub(crate) fn share(&self, script: &Script, time: Duration) -> Result<(), String> {
        if script.shared().is_empty() {
            return Ok(());
        }
        let (glue, names) = (self.glue.clone(), script.shared().to_vec());
        self.bounded(processor_time(), time, |ctx| {
            glue.restore(ctx)?.get::<_, Function<'_>>("share")?.call::<_, ()>((names,))
        })
    }

    /// Runs the top level and looks for a function of that name.
    pub(crate) fn probe(&self, script: &Script, entry: &str, time: Duration) -> Result<Probe, String> {
        let (wrapped, glue) = (script.wrapped(entry), self.glue.clone());
        self.bounded(processor_time(), time, |ctx| {
            let glue = glue.restore(ctx)?;
            glue.get::<_, Function<'_>>("look")?.call::<_, ()>(())?;
            let load: Function<'_> = ctx.eval_with_options(wrapped, global())?;
            let begin: Function<'_> = glue.get("begin")?;
            let found = load.call::<_, Value<'_>>((This(ctx.globals()), begin))?.is_function();
            let same: bool = glue.get::<_, Function<'_>>("looksTheSame")?.call(())?;
            Ok(Probe { found, changes_built_ins: !same })
        })
    }

    /// Freezes the built-in objects.
    pub(crate) fn seal(&mut self, time: Duration) -> Result<(), String> {
        let glue = self.glue.clone();
        self.bounded(processor_time(), time, |ctx| glue.restore(ctx)?.get::<_, Function<'_>>("seal")?.call::<_, ()>(()))
    }

    /// Loads the code.
    pub(crate) fn load(&mut self, script: &Script, entry: &str, time: Duration) -> Result<(), String> {
        let wrapped = script.wrapped(entry);
        let load = self.bounded(processor_time(), time, |ctx| {
            let load: Function<'_> = ctx.eval_with_options(wrapped, global())?;
            Ok(Persistent::save(ctx, load))
        })?;
        self.load = Some(load);
        Ok(())
    }

    /// Calls the codec. Also returns true if the engine is unchanged.
    pub(crate) fn call(&self, entry: usize, uplink: &Uplink<'_>, time: Duration) -> (Answer, bool) {
        let (begin, begin_elapsed) = (processor_time(), Clock::System.instant());
        let called = self.bounded(begin, time, |ctx| {
            let mut arguments = Args::new(ctx.clone(), 4 + uplink.bytes.len());
            arguments.push_arg(self.load.clone())?;
            arguments.push_arg(entry as i32)?;
            arguments.push_arg(
                uplink
                    .f_port
                    .map_or_else(|| Value::new_null(ctx.clone()), |port| Value::new_int(ctx.clone(), i32::from(port))),
            )?;
            arguments.push_arg(uplink.received_at as f64)?;
            arguments.push_args(uplink.bytes.iter().map(|byte| i32::from(*byte)))?;
            CodecOutput::read(arguments.apply(&self.call.clone().restore(ctx)?)?)
        });
        let elapsed = Clock::System.elapsed(begin_elapsed);
        let took = if elapsed < NOT_WORTH_A_LOOK { elapsed } else { processor_time().saturating_sub(begin) };
        let (result, warnings, is_clean) = match called {
            Ok(told) => {
                let is_clean = told.is_clean && !self.runtime.is_job_pending();
                let warnings = told.warnings.as_deref().map(texts).unwrap_or_default();
                (told.result(), warnings, is_clean)
            }
            Err(message) => (Err(Failure::Thrown(message)), Vec::new(), false),
        };
        (Answer { result, warnings, took, engines: 0 }, is_clean)
    }
}

/// Describes an error of the language.
fn not_run(message: &str) -> String {
    format!("does not run: {message}")
}

/// Rewrites an exception of the engine itself in terms of a codec.
fn thrown_words(thrown: String) -> String {
    if thrown.starts_with("RangeError: Maximum call stack size exceeded") {
        return "calls itself too deeply".to_owned();
    }
    thrown
}

fn unavailable(_: rquickjs::Error) -> String {
    "the engine for code cannot be started at present".to_owned()
}

/// Result of the prelude's `call`.
#[derive(Default)]
struct CodecOutput {
    data: Option<String>,
    errors: Option<String>,
    warnings: Option<String>,
    thrown: Option<String>,
    is_clean: bool,
}

impl CodecOutput {
    fn read(told: Value<'_>) -> rquickjs::Result<Self> {
        if let Some(data) = told.as_string() {
            return Ok(Self { data: Some(data.to_string()?), is_clean: true, ..Self::default() });
        }
        let told = told.into_array().ok_or(rquickjs::Error::Unknown)?;
        Ok(Self {
            data: told.get(0)?,
            errors: told.get(1)?,
            warnings: told.get(2)?,
            thrown: told.get(3)?,
            is_clean: told.get(4)?,
        })
    }

    fn result(self) -> Result<RawJson, Failure> {
        if let Some(thrown) = self.thrown {
            return Err(Failure::Thrown(thrown_words(thrown)));
        }
        if let Some(errors) = self.errors {
            return Err(Failure::Told(texts(&errors)));
        }
        let data = self.data.unwrap_or_else(|| "null".to_owned());
        if data.len() > TEXT_BYTES_MAX {
            return Err(Failure::Thrown(format!("answers more than {TEXT_BYTES_MAX} bytes")));
        }
        RawJson::check(Bytes::from(data)).map_err(|fault| Failure::Thrown(format!("answers no sound JSON: {fault}")))
    }
}

/// Reads a JSON array of texts.
fn texts(json: &str) -> Vec<String> {
    let texts = match isobar_model::json::parse(json) {
        Ok(Json::Array(texts)) => texts,
        _ => Vec::new(),
    };
    texts.iter().filter_map(|text| text.as_text().map(str::to_owned)).collect()
}

/// Returns the names that a script declares in the global object, though it throws null before it does anything; or its
/// error, if there is one.
fn declared(ctx: &Ctx<'_>, script: &str) -> rquickjs::Result<Result<Vec<String>, Option<String>>> {
    let globals = ctx.globals();
    for name in own_names(&globals)? {
        // Some cannot be removed, nor declared.
        if globals.remove(name).is_err() {
            ctx.catch();
        }
    }
    let before = own_names(&globals)?;
    if ctx.eval_with_options::<(), _>(script, global()).is_err() {
        // A syntax error is thrown before.
        let thrown = ctx.catch();
        if !thrown.is_null() {
            return Ok(Err(message_of(ctx, &thrown)));
        }
    }
    let mut names = own_names(&globals)?;
    names.retain(|name| !before.contains(name));
    Ok(Ok(names))
}

fn own_names(object: &Object<'_>) -> rquickjs::Result<Vec<String>> {
    object.own_keys(Filter::new().string()).collect()
}

fn global() -> EvalOptions {
    let mut options = EvalOptions::default();
    options.global = true;
    options.strict = false;
    options.filename = Some("code".to_owned());
    options
}

/// Returns the message of an exception, with its line.
fn message_of<'js>(ctx: &Ctx<'js>, thrown: &Value<'js>) -> Option<String> {
    let text = Coerced::<String>::from_js(ctx, thrown.clone()).ok()?.0;
    let stack = thrown.as_object().and_then(|object| object.get::<_, Option<String>>("stack").ok().flatten());
    let line = stack.as_deref().and_then(|stack| {
        let (_, place) = stack.split_once("code:")?;
        place.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    });
    Some(match line {
        Some(line) => format!("{} (line {line})", thrown_words(text)),
        None => thrown_words(text),
    })
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Engine")
    }
}
