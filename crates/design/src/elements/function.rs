//! `function`: decodes bytes with the project's own code, by the LoRaWAN codec convention (contract: The project design).

use std::borrow::Cow;
use std::sync::Arc;

use super::context::{Passed, Run};
use super::payload_bytes::{Encoding, bytes_of};
use super::reference::Reference;
use super::{Ability, Element, Shape, properties::Properties};
use crate::code::{CALL_TIME, Code, Failure, Uplink};
use crate::value::budget::Budget;
use crate::value::held_bytes::HeldBytes;
use crate::value::{Computed, Problem, Value, built};

pub(crate) const SHAPE: Shape = Shape {
    name: "function",
    abilities: &[Ability { name: "evaluate", arguments: &[] }],
    triggers: &["result", "error"],
    read: CodeElement::read,
};

const ERROR: usize = 1;
const ENCODINGS: [(&str, Encoding); 2] = [("base64", Encoding::Base64), ("hex", Encoding::Hex)];
/// Encodings of stored designs, which may say `auto`: it used to guess from the text, and now means Base64, the
/// default.
const STORED_ENCODINGS: [(&str, Encoding); 3] = [ENCODINGS[0], ENCODINGS[1], ("auto", Encoding::Base64)];

/// A function element.
#[derive(Debug)]
pub(crate) struct CodeElement {
    name: Arc<str>,
    /// `None` if the code is faulty.
    code: Option<Code>,
    f_port: Option<Reference>,
    bytes: Option<Reference>,
    encoding: Encoding,
}

impl HeldBytes for CodeElement {
    fn held_bytes(&self) -> usize {
        let references = self.f_port.held_bytes() + self.bytes.held_bytes();
        references + self.code.as_ref().map_or(0, Code::held_bytes)
    }
}

impl CodeElement {
    fn read(properties: &mut Properties<'_>) -> Element {
        let code = match properties.get("code").map(|code| code.as_text()) {
            Some(Some(code)) => Code::compile(code, &properties.scope.code_time),
            Some(None) => Err("must be JavaScript, in a string".to_owned()),
            None => Err("is required".to_owned()),
        };
        let code = code.map_err(|fault| properties.fault("code", fault)).ok();
        let f_port = reference(properties, "fPortRef");
        let bytes = reference(properties, "bytesRef");
        let encodings = if properties.scope.code_time.is_of_stored() { &STORED_ENCODINGS[..] } else { &ENCODINGS[..] };
        let encoding = properties.word("bytesEncoding", encodings, Encoding::default());
        Element::Function(Self { name: properties.name.clone(), code, f_port, bytes, encoding })
    }

    pub(crate) fn evaluate<'e>(&'e self, incoming: &Value<'e>, run: &mut Run<'e>) -> Computed<Passed<'e>> {
        let Some(code) = &self.code else { return Err(Problem::new("has no code")) };
        let time = run.code_time().min(CALL_TIME);
        if time.is_zero() {
            return Err(Problem::new("the functions of this run take too long"));
        }
        let (bytes, f_port) = match self.input(incoming, &run.budget) {
            Ok(input) => input,
            // The budget is exceeded: the run ends here.
            Err(problem) if run.budget.is_exceeded() => return Err(problem),
            Err(problem) => {
                let value = Value::text(&problem.0);
                return Ok(self.failed(&problem, value, run));
            }
        };
        let uplink = Uplink { bytes: &bytes, f_port, received_at: run.received_at().millis() };
        let answer = code.call(&uplink, time);
        run.spend_code_time(answer.took, answer.engines);
        answer.warnings.iter().for_each(|warning| run.note(warning));
        match answer.result {
            Ok(data) => {
                // It is parsed, and copied.
                run.budget.spend_reading(2 * data.bytes().len())?;
                Ok(Passed { trigger: 0, value: built(&data.tree())? })
            }
            Err(failure) => {
                let (message, value) = match failure {
                    Failure::Told(errors) => {
                        let value = Value::list(errors.iter().map(Value::text).collect())?;
                        (errors.join("; "), value)
                    }
                    Failure::Thrown(message) => {
                        let value = Value::text(&message);
                        (message, value)
                    }
                };
                Ok(self.failed(&Problem(Cow::Owned(message)), value, run))
            }
        }
    }

    /// Passes on the reason why there is no data. The event records it, even if the design handles it.
    fn failed<'e>(&self, problem: &Problem, value: Value<'e>, run: &mut Run<'e>) -> Passed<'e> {
        run.fail(&self.name, problem);
        Passed { trigger: ERROR, value }
    }

    /// Finds the bytes and the port in a value.
    fn input(&self, incoming: &Value<'_>, budget: &Budget) -> Computed<(Vec<u8>, Option<u8>)> {
        let bytes = bytes_of(&self.bytes(incoming, budget)?, self.encoding, budget)?;
        Ok((bytes, self.f_port(incoming, budget)?))
    }

    /// Finds the bytes: at `bytesRef`, or else the value itself, its `bytes` or its `data`.
    fn bytes<'e>(&self, incoming: &Value<'e>, budget: &Budget) -> Computed<Value<'e>> {
        let found = match &self.bytes {
            Some(reference) => reference.find(incoming, budget)?,
            None if incoming.is_map() => match incoming.member("bytes", budget)? {
                Some(found) => Some(found),
                None => incoming.member("data", budget)?,
            },
            None => Some(incoming.clone()),
        };
        found.ok_or_else(|| match &self.bytes {
            Some(reference) => Problem::new(format!("there are no bytes at {}", reference.text())),
            None => Problem::new("there are no bytes: the value has neither 'bytes' nor 'data'"),
        })
    }

    /// Finds the port: at `fPortRef`, or else `fPort`; without one the codec gets null.
    fn f_port(&self, incoming: &Value<'_>, budget: &Budget) -> Computed<Option<u8>> {
        let found = match &self.f_port {
            Some(reference) => reference.find(incoming, budget)?,
            None => incoming.member("fPort", budget)?,
        };
        let Some(found) = found.filter(|found| !matches!(found, Value::Null)) else { return Ok(None) };
        budget.spend_number(&found)?;
        budget.spend_bytes(found.as_text().map_or(0, str::len))?;
        let number = found.whole().or_else(|| found.as_text()?.trim().parse().ok());
        let port = number.and_then(|number| u8::try_from(number).ok());
        port.map(Some).ok_or_else(|| Problem::new("the fPort is no whole number from 0 to 255"))
    }
}

fn reference(properties: &mut Properties<'_>, property: &str) -> Option<Reference> {
    let value = properties.get(property)?;
    let reference = value.as_text().map_or_else(|| Err("must be a string".to_owned()), Reference::read);
    reference.map_err(|fault| properties.fault(property, fault)).ok()
}
