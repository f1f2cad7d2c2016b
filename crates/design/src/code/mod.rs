//! JavaScript of a project: codecs by the LoRaWAN convention, run by QuickJS with limits of time and memory.
//!
//! Code takes bytes and returns JSON; it has no files, no network, and no access to other projects or its own earlier
//! runs: its top level runs again each time, in an engine whose built-in objects are frozen.

mod engine;
mod memory;
mod script;

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use isobar_model::json::RawJson;

use engine::Engine;
use memory::processor_time;
use script::Script;

use crate::value::held_bytes::block;

/// Most bytes of code.
const CODE_BYTES_MAX: usize = 256 << 10;
/// Processor time of the code when a design is compiled: its top level runs a few times.
const COMPILE_TIME: Duration = Duration::from_millis(250);
/// Processor time of one call.
pub(crate) const CALL_TIME: Duration = Duration::from_millis(50);
/// Processor time of all code of a design when it is compiled. The time of a sound codec, to make an engine and run its
/// top level, is free.
const DESIGN_TIME: Duration = Duration::from_secs(2);
const FREE_TIME: Duration = Duration::from_millis(25);
/// Factor of the time limits for a stored design: it was compiled in time once, and must not fail on a slower machine.
const STORED_FACTOR: u32 = 4;
/// Most engines that one thread keeps. One takes a few hundred KiB if its code stores nothing.
const ENGINES_MAX: usize = 32;
/// Functions that code may offer, in order of preference: the LoRaWAN convention, and the older ones of ChirpStack and
/// The Things Stack.
const ENTRIES: [&str; 3] = ["decodeUplink", "Decode", "Decoder"];

/// Time limits for checking the code of one design.
#[derive(Debug)]
pub(crate) struct CheckTime {
    /// Limit of each step of checking one function.
    step: Duration,
    /// Rest of the limit of all code of the design.
    left: Cell<Duration>,
}

impl Default for CheckTime {
    fn default() -> Self {
        Self { step: COMPILE_TIME, left: Cell::new(DESIGN_TIME) }
    }
}

impl CheckTime {
    /// Returns the limits of a design that was checked before.
    pub(crate) fn of_stored() -> Self {
        Self { step: STORED_FACTOR * COMPILE_TIME, left: Cell::new(STORED_FACTOR * DESIGN_TIME) }
    }

    pub(crate) fn is_of_stored(&self) -> bool {
        self.step > COMPILE_TIME
    }

    /// Runs a check unless the time is used up.
    fn take<T>(&self, check: impl FnOnce(Duration) -> Result<T, String>) -> Result<T, String> {
        let left = self.left.get();
        if left.is_zero() {
            return Err("the functions of the design take too long to be checked".to_owned());
        }
        let begin = processor_time();
        let checked = check(self.step);
        let took = processor_time().saturating_sub(begin).saturating_sub(FREE_TIME);
        self.left.set(left.saturating_sub(took));
        checked
    }
}

/// Input of a codec.
#[derive(Debug)]
pub(crate) struct Uplink<'a> {
    /// Payload.
    pub(crate) bytes: &'a [u8],
    /// LoRaWAN port, if there is one.
    pub(crate) f_port: Option<u8>,
    /// Time of receipt, in milliseconds since the epoch.
    pub(crate) received_at: i64,
}

/// Output of a codec.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) result: Result<RawJson, Failure>,
    pub(crate) warnings: Vec<String>,
    /// Processor time of the call, without making an engine.
    pub(crate) took: Duration,
    /// Engines that were made for it.
    pub(crate) engines: u32,
}

impl Answer {
    /// Returns the output of a codec that was not called.
    fn without(result: Failure, engines: u32) -> Self {
        Self { result: Err(result), warnings: Vec::new(), took: Duration::ZERO, engines }
    }
}

/// Reason why there is no data.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Errors that the codec returned.
    Told(Vec<String>),
    /// An exception, or an exceeded limit.
    Thrown(String),
}

/// Code that was checked.
#[derive(Debug)]
pub(crate) struct Code(Arc<Source>);

/// Source from which engines are made.
#[derive(Debug)]
struct Source {
    script: Script,
    /// Index of its function in [`ENTRIES`].
    entry: usize,
    /// True if its top level changes built-in objects: then it cannot run in a frozen engine, and every call makes one.
    changes_built_ins: bool,
    /// Time in nanoseconds by which calls exceeded their limit: later calls are refused until it is paid back.
    owed: AtomicU64,
}

thread_local! {
    /// Engines by their code, the most recently used last.
    static ENGINES: RefCell<Vec<(Weak<Source>, Engine)>> = const { RefCell::new(Vec::new()) };
}

impl Code {
    /// Checks the code: its syntax, its top level, and that it offers a function. The error says what is wrong.
    pub(crate) fn compile(text: &str, time: &CheckTime) -> Result<Self, String> {
        if text.len() > CODE_BYTES_MAX {
            return Err(format!("has at most {CODE_BYTES_MAX} bytes"));
        }
        time.take(|step| Self::check(text, step))
    }

    fn check(text: &str, step: Duration) -> Result<Self, String> {
        let engine = Engine::new(text)?;
        let script = Script::read(&engine, text, step)?;
        let source = match Source::of(&engine, &script, step) {
            Ok(Some(source)) => Some(source),
            // Tried last: code that finds a module may look for the rest of Node.
            _ if text.contains("exports") => Source::of(&Engine::new(text)?, &script.as_module(), step)?,
            plain => plain?,
        };
        source.map(|source| Self(Arc::new(source))).ok_or_else(|| "has no function decodeUplink(input)".to_owned())
    }

    /// Returns its size in bytes, without engines.
    pub(crate) fn held_bytes(&self) -> usize {
        block(size_of::<Source>() + 2 * size_of::<usize>()) + self.0.script.held_bytes()
    }

    /// Calls the codec. `time` limits the processor time of this call.
    pub(crate) fn call(&self, uplink: &Uplink<'_>, time: Duration) -> Answer {
        let source = &self.0;
        if source.goes_without() {
            let message = "is not run for a while: it took far more than its time before";
            return Answer::without(Failure::Thrown(message.to_owned()), 0);
        }
        let answer = source.call(uplink, time);
        source.note_debt(answer.took);
        answer
    }
}

impl Source {
    /// Makes the source of engines for that script, if it offers a function.
    fn of(engine: &Engine, script: &Script, step: Duration) -> Result<Option<Self>, String> {
        engine.share(script, step)?;
        let mut changes_built_ins = false;
        for (entry, name) in ENTRIES.iter().enumerate() {
            let probe = engine.probe(script, name, step)?;
            // A later trial finds what an earlier one has changed.
            changes_built_ins |= probe.changes_built_ins;
            if probe.found {
                let owed = AtomicU64::new(0);
                return Ok(Some(Self { script: script.clone(), entry, changes_built_ins, owed }));
            }
        }
        Ok(None)
    }

    fn engine(&self) -> Result<Engine, String> {
        let mut engine = Engine::new(self.script.text())?;
        engine.share(&self.script, COMPILE_TIME)?;
        if !self.changes_built_ins {
            engine.seal(COMPILE_TIME)?;
        }
        let entry = ENTRIES.get(self.entry).unwrap_or(&ENTRIES[0]);
        engine.load(&self.script, entry, COMPILE_TIME)?;
        Ok(engine)
    }

    /// Calls the codec on this thread.
    fn call(self: &Arc<Self>, uplink: &Uplink<'_>, time: Duration) -> Answer {
        let kept = take(self);
        let engines = u32::from(kept.is_none());
        let engine = match kept.map_or_else(|| self.engine(), Ok) {
            Ok(engine) => engine,
            Err(message) => return Answer::without(Failure::Thrown(message), engines),
        };
        let (answer, is_clean) = engine.call(self.entry, uplink, time);
        if is_clean {
            put_back(self, engine);
        }
        Answer { engines, ..answer }
    }

    /// Adds the time by which a call exceeded its limit to what the code owes.
    fn note_debt(&self, took: Duration) {
        if let Some(beyond) = took.checked_sub(CALL_TIME) {
            self.owed.fetch_add(u64::try_from(beyond.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    }

    /// Returns true if this call is refused to pay for an earlier one. The engine checks its clock only at intervals,
    /// so hostile code can exceed its time once; on average it cannot.
    fn goes_without(&self) -> bool {
        let a_call = CALL_TIME.as_nanos() as u64;
        let pay = |owed: u64| owed.checked_sub(a_call);
        self.owed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay).is_ok()
    }
}

/// Takes the engine that this thread keeps for the code.
fn take(source: &Arc<Source>) -> Option<Engine> {
    ENGINES.with(|engines| {
        let mut engines = engines.try_borrow_mut().ok()?;
        let at = engines.iter().rposition(|(owner, _)| std::ptr::eq(owner.as_ptr(), Arc::as_ptr(source)))?;
        Some(engines.remove(at).1)
    })
}

fn put_back(source: &Arc<Source>, engine: Engine) {
    ENGINES.with(|engines| {
        let Ok(mut engines) = engines.try_borrow_mut() else { return };
        if engines.len() >= ENGINES_MAX {
            engines.retain(|(owner, _)| owner.strong_count() > 0);
        }
        if engines.len() >= ENGINES_MAX {
            engines.remove(0);
        }
        engines.push((Arc::downgrade(source), engine));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(text: &str) -> Result<Code, String> {
        Code::compile(text, &CheckTime::default())
    }

    fn engines() -> usize {
        ENGINES.with(|engines| engines.borrow().len())
    }

    fn call(code: &Code) -> String {
        let answer = code.call(&Uplink { bytes: &[1], f_port: None, received_at: 0 }, CALL_TIME);
        answer.result.map_or_else(|failure| format!("{failure:?}"), |data| data.text().to_owned())
    }

    #[test]
    fn unchanged_engine_is_reused() {
        for (body, is_kept) in [
            ("return {data: 1};", true),
            ("x = 5; globalThis.y = 1; return {data: 1};", true),
            ("try { Object.prototype.z = 1; } catch (e) {} return {data: 1};", true),
            ("Object.defineProperty(globalThis, 'x', {value: 1}); return {data: 1};", false),
            ("Promise.resolve().then(function () {}); return {data: 1};", false),
        ] {
            ENGINES.with(|engines| engines.borrow_mut().clear());
            let code = compiled(&format!("function decodeUplink(input) {{ {body} }}")).unwrap();
            assert!(!code.0.changes_built_ins, "{body}");
            for _ in 0..3 {
                assert_eq!(call(&code), "1", "{body}");
                assert_eq!(engines(), usize::from(is_kept), "{body}");
            }
        }
    }

    #[test]
    fn code_that_changes_built_ins_gets_an_engine_for_each_call() {
        ENGINES.with(|engines| engines.borrow_mut().clear());
        let code =
            compiled("Number.prototype.twice = function () { return 2 * this; }; function decodeUplink(input) { return {data: input.bytes[0].twice()}; }")
                .unwrap();
        assert!(code.0.changes_built_ins);
        assert_eq!((call(&code).as_str(), call(&code).as_str(), engines()), ("2", "2", 0));
    }

    #[test]
    fn older_forms_may_change_built_ins_too() {
        let code = compiled("Object.prototype.x = 1; function Decoder(bytes, port) { return {n: [].x}; }").unwrap();
        assert!(code.0.changes_built_ins);
        assert_eq!(call(&code), r#"{"n":1}"#);
    }

    #[test]
    fn engines_kept_by_a_thread_are_limited() {
        let codes: Vec<Code> = (0..40)
            .map(|n| compiled(&format!("function decodeUplink() {{ return {{data: {n}}}; }}")).unwrap())
            .collect();
        for (n, code) in codes.iter().enumerate() {
            assert_eq!(call(code), n.to_string());
        }
        assert_eq!(engines(), ENGINES_MAX);
        assert_eq!(call(&codes[0]), "0");
    }

    #[test]
    fn functions_of_a_design_share_the_check_time() {
        let time = CheckTime::default();
        let refused = |code: &str| Code::compile(code, &time).map(|_| ()).unwrap_err();
        assert!(refused("while (true);").contains("takes longer than"));
        assert!(time.left.get() < DESIGN_TIME);
        time.left.set(Duration::ZERO);
        assert!(refused("function decodeUplink() {}").contains("take too long to be checked"));
    }

    #[test]
    fn excess_time_of_a_call_is_taken_from_later_ones() {
        let code = compiled("function decodeUplink() { return {data: 1}; }").unwrap();
        code.0.owed.store(2 * CALL_TIME.as_nanos() as u64 + 5, Ordering::Relaxed);
        assert!(call(&code).contains("is not run for a while"));
        assert!(call(&code).contains("is not run for a while"));
        assert_eq!(call(&code), "1");
    }
}
