//! Errors of the library as Python's exceptions: one class, `reshard.Error`, with the kind and, for texts, the position; those that an
//! argument caused are `ValueError`s or `TypeError`s, too.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use reshard::{Error, ErrorKind};

static ERROR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ARGUMENT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static ELEMENT: PyOnceLock<Py<PyType>> = PyOnceLock::new();
static MEMORY: PyOnceLock<Py<PyType>> = PyOnceLock::new();

/// The exception of an error.
pub fn raised(error: Error) -> PyErr {
    let (class, name) = match error.kind() {
        ErrorKind::Notation
        | ErrorKind::Mismatch
        | ErrorKind::OutOfRange
        | ErrorKind::TooLarge
        | ErrorKind::Unsupported => (&ARGUMENT, "ArgumentError"),
        ErrorKind::Memory => (&MEMORY, "OutOfMemoryError"),
        _ => (&ERROR, "Error"),
    };
    Python::attach(|py| made(py, class, name, &error).unwrap_or_else(|failed| failed))
}

/// The exception for an argument that is of another type, or has elements of another type, than is wanted.
pub fn wrong_type(message: impl Into<String>) -> PyErr {
    let error = Error::new(ErrorKind::Mismatch, message);
    Python::attach(|py| made(py, &ELEMENT, "ElementError", &error).unwrap_or_else(|failed| failed))
}

/// The exception for an argument that does not fit.
pub fn wrong(message: impl Into<String>) -> PyErr {
    raised(Error::new(ErrorKind::Mismatch, message))
}

fn made(py: Python<'_>, class: &PyOnceLock<Py<PyType>>, name: &str, error: &Error) -> PyResult<PyErr> {
    let class = class.import(py, "reshard._errors", name)?;
    let value = class.call1((error.to_string(), error.kind().name(), error.position()))?;
    Ok(PyErr::from_value(value))
}

/// The error that other ranks are told of an exception of this one.
pub fn told(exception: &PyErr) -> Error {
    Python::attach(|py| {
        let value = exception.value(py);
        let kind = value.getattr("kind").and_then(|kind| kind.extract::<String>()).unwrap_or_default();
        let kind = ErrorKind::ALL.into_iter().find(|known| known.name() == kind);
        let message =
            value.str().map_or_else(|_| "an exception without words".into(), |text| text.to_string());
        let message = match (kind, value.get_type().name()) {
            (None, Ok(name)) => format!("{name}: {message}"),
            _ => message,
        };
        Error::new(kind.unwrap_or(ErrorKind::Mismatch), message)
    })
}

/// A result of the library as one of Python.
pub trait OrRaise<T> {
    fn or_raise(self) -> PyResult<T>;
}

impl<T> OrRaise<T> for reshard::Result<T> {
    fn or_raise(self) -> PyResult<T> {
        self.map_err(raised)
    }
}
