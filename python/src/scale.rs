//! Alpha and beta: numbers of the arrays' type, which is known at run time.

use crate::error::wrong_type;
use numpy::{PyArrayDescr, PyArrayDescrMethods};
use pyo3::prelude::*;
use reshard::Number;
use reshard::engine::Scaling;
use reshard::num_complex::Complex;

/// What becomes of the elements on their way: `alpha * source + beta * destination`.
#[derive(Default)]
pub struct Scales<'a, 'p> {
    pub alpha: Option<&'a Bound<'p, PyAny>>,
    pub beta: Option<&'a Bound<'p, PyAny>>,
    pub conjugate: bool,
}

impl Scales<'_, '_> {
    /// True if a destination keeps a share of what it has.
    pub fn keeps(&self) -> PyResult<bool> {
        match self.beta {
            None => Ok(false),
            Some(beta) => Ok(!beta.eq(0)?),
        }
    }

    /// The scaling of elements of a type; none if they are copied as they are.
    pub fn of(&self, dtype: &Bound<'_, PyArrayDescr>) -> PyResult<Option<Scaling>> {
        if self.alpha.is_none() && self.beta.is_none() && !self.conjugate {
            return Ok(None);
        }
        let native = dtype.is_native_byteorder().unwrap_or(false);
        match (dtype.kind(), dtype.itemsize()) {
            (b'f', 4) if native => self.made(real(|value| value as f32)),
            (b'f', 8) if native => self.made(real(|value| value)),
            (b'c', 8) if native => self.made(complex(|value| Complex::new(value.re as f32, value.im as f32))),
            (b'c', 16) if native => self.made(complex(|value| value)),
            _ => Err(wrong_type(format!(
                "alpha, beta or conjugate was given for elements of type {dtype}; float32, float64, complex64 and complex128 of this \
                 machine's byte order can be scaled"
            ))),
        }
    }

    fn made<T: Number>(
        &self,
        number: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> PyResult<Option<Scaling>> {
        let alpha = self.alpha.map_or(Ok(T::ONE), &number)?;
        let beta = self.beta.map_or(Ok(T::zeroed()), &number)?;
        Ok(Scaling::new(alpha, beta, self.conjugate))
    }
}

fn real<T>(of: impl Fn(f64) -> T) -> impl Fn(&Bound<'_, PyAny>) -> PyResult<T> {
    move |given| {
        let value: f64 =
            given.extract().map_err(|_| no_number(given, "a real number, as the elements are real"))?;
        Ok(of(value))
    }
}

fn complex<T>(of: impl Fn(Complex<f64>) -> T) -> impl Fn(&Bound<'_, PyAny>) -> PyResult<T> {
    move |given| {
        let part = |name: &str| -> PyResult<f64> { given.getattr(name)?.extract() };
        match (part("real"), part("imag")) {
            (Ok(re), Ok(im)) => Ok(of(Complex::new(re, im))),
            _ => Err(no_number(given, "a number")),
        }
    }
}

fn no_number(given: &Bound<'_, PyAny>, wanted: &str) -> PyErr {
    let shown = given.repr().map_or_else(|_| "it".into(), |text| text.to_string());
    wrong_type(format!("alpha or beta was given as {shown}; give {wanted}"))
}
