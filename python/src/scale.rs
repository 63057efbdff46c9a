//! Alpha and beta: numbers of the arrays' type, which is known at run time.

use crate::error::wrong_type;
use crate::numbers::shown;
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
    pub conjugate: Option<&'a Bound<'p, PyAny>>,
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
        let conjugate = match self.conjugate {
            None => false,
            Some(given) => given.extract::<bool>().map_err(|_| {
                wrong_type(format!("conjugate was given as {}; give True or False", shown(given)))
            })?,
        };
        if self.alpha.is_none() && self.beta.is_none() && !conjugate {
            return Ok(None);
        }
        let native = dtype.is_native_byteorder().unwrap_or(false);
        match (dtype.kind(), dtype.itemsize()) {
            (b'f', 4) if native => self.made(conjugate, real(|value| value as f32)),
            (b'f', 8) if native => self.made(conjugate, real(|value| value)),
            (b'c', 8) if native => {
                self.made(conjugate, complex(|value| Complex::new(value.re as f32, value.im as f32)))
            }
            (b'c', 16) if native => self.made(conjugate, complex(|value| value)),
            _ => Err(wrong_type(format!(
                "alpha, beta or conjugate was given for elements of type {dtype}; float32, float64, complex64 and complex128 of this \
                 machine's byte order can be scaled"
            ))),
        }
    }

    fn made<T: Number>(
        &self,
        conjugate: bool,
        number: impl Fn(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> PyResult<Option<Scaling>> {
        let alpha = self.alpha.map_or(Ok(T::ONE), &number)?;
        let beta = self.beta.map_or(Ok(T::zeroed()), &number)?;
        Ok(Scaling::new(alpha, beta, conjugate))
    }
}

fn real<T>(of: impl Fn(f64) -> T) -> impl Fn(&Bound<'_, PyAny>) -> PyResult<T> {
    move |given| {
        let refused = || no_number(given, "a real number, as the elements are real");
        // A complex number of NumPy would leave its imaginary part behind.
        if given.getattr("imag").is_ok_and(|imag| !imag.eq(0).unwrap_or(false)) {
            return Err(refused());
        }
        Ok(of(given.extract().map_err(|_| refused())?))
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
    wrong_type(format!("alpha or beta was given as {}; give {wanted}", shown(given)))
}
