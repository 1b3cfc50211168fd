//! Typed reading of a JSON object, with Python's idea of numbers where LMCache has it.

use serde_json::{Map, Value};

use super::ConfigError;

/// The object that is read.
pub(super) struct Fields<'a>(pub(super) &'a Map<String, Value>);

impl<'a> Fields<'a> {
    /// An error about a field that is there.
    pub(super) fn refuse(&self, field: &str, expected: &'static str) -> ConfigError {
        self.refuse_in("", field, expected)
    }

    /// The same within a block, whose name and a dot are `block`.
    pub(super) fn refuse_in(
        &self,
        block: &str,
        field: &str,
        expected: &'static str,
    ) -> ConfigError {
        ConfigError::Value {
            field: format!("{block}{field}"),
            expected,
            found: show(self.0.get(field).unwrap_or(&Value::Null)),
        }
    }

    /// Text; null is refused.
    pub(super) fn text(&self, field: &str) -> Result<Option<&'a str>, ConfigError> {
        match self.0.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(self.refuse(field, "text")),
        }
    }

    /// Text or null, never repeated in an error.
    pub(super) fn secret(&self, field: &str) -> Result<Option<String>, ConfigError> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(ConfigError::Value {
                field: field.to_owned(),
                expected: "text or null",
                found: show_kind(other).to_owned(),
            }),
        }
    }

    /// A number of at least 0; booleans are none.
    pub(super) fn not_negative(&self, field: &str, default: f64) -> Result<f64, ConfigError> {
        match self.0.get(field) {
            None => Ok(default),
            Some(value) => value
                .as_f64()
                .filter(|number| *number >= 0.0)
                .ok_or_else(|| self.refuse(field, "a number of at least 0")),
        }
    }

    /// An integer of at least 1; `4.0` is none.
    pub(super) fn positive_integer(
        &self,
        field: &str,
        default: usize,
    ) -> Result<usize, ConfigError> {
        match self.0.get(field) {
            None => Ok(default),
            Some(Value::Number(number)) if number.is_f64() => {
                Err(self.refuse(field, "an integer of at least 1"))
            }
            Some(Value::Number(number)) => number
                .as_u64()
                .and_then(|number| usize::try_from(number).ok())
                .filter(|number| *number >= 1)
                .ok_or_else(|| self.refuse(field, "at least 1")),
            Some(_) => Err(self.refuse(field, "an integer of at least 1")),
        }
    }

    /// `true` or `false`, nothing that resembles them.
    pub(super) fn boolean(&self, field: &str, default: bool) -> Result<bool, ConfigError> {
        match self.0.get(field) {
            None => Ok(default),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.refuse(field, "true or false")),
        }
    }

    /// An object or null.
    pub(super) fn block(&self, field: &str) -> Result<Option<Fields<'a>>, ConfigError> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Object(map)) => Ok(Some(Fields(map))),
            Some(_) => Err(self.refuse(field, "an object or null")),
        }
    }

    /// What Python's `float()` takes: numbers, booleans and numeric text.
    pub(super) fn python_float(
        &self,
        block: &str,
        field: &str,
        default: f64,
    ) -> Result<f64, ConfigError> {
        let number = match self.0.get(field) {
            None => Some(default),
            Some(Value::Bool(flag)) => Some(f64::from(u8::from(*flag))),
            Some(Value::Number(number)) => number.as_f64(),
            Some(Value::String(text)) => float_text(text),
            Some(_) => None,
        };
        number.ok_or_else(|| self.refuse_in(block, field, "a number"))
    }
}

/// Whitespace as Python strips it: Unicode's, and the four ASCII separators.
pub(super) fn is_python_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// Rust and Python agree on float text but for blanks around it and `_` between digits.
fn float_text(text: &str) -> Option<f64> {
    let text = text.trim_matches(is_python_space);
    let bytes = text.as_bytes();
    let digit = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at))
            .is_some_and(u8::is_ascii_digit)
    };
    let misplaced = |(at, byte): (usize, &u8)| {
        *byte == b'_' && !(digit(at.checked_sub(1)) && digit(at.checked_add(1)))
    };
    if bytes.iter().enumerate().any(misplaced) {
        return None;
    }
    text.replace('_', "").parse().ok()
}

/// A value for an error message, cut to what a line holds.
pub(super) fn show(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((cut, _)) => format!("{}…", text.get(..cut).unwrap_or_default()),
        None => text,
    }
}

/// What sort of value it is, for fields whose value stays out of messages.
pub(super) fn show_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_a_float_as_in_python() {
        for (text, number) in [
            ("0.5", 0.5),
            (" 0.25 ", 0.25),
            ("\u{1f}\u{a0}+1e-1\n", 0.1),
            ("1_000.5", 1000.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("-0", 0.0),
            ("Infinity", f64::INFINITY),
        ] {
            assert_eq!(float_text(text), Some(number), "{text}");
        }
        assert!(float_text("nan").is_some_and(f64::is_nan));
        for text in ["", "x", "1 2", "_1", "1_", "1__0", "1_.5", "0x1", "1e_5"] {
            assert_eq!(float_text(text), None, "{text}");
        }
    }

    #[test]
    fn long_values_are_cut() {
        let shown = show(&Value::String("é".repeat(200)));
        assert_eq!(shown.chars().count(), 81);
        assert!(shown.ends_with('…'));
    }
}
