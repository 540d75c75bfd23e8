//! Contracts of tensor arguments.
//!
//! Each check returns an error that Python raises as `TypeError` (wrong dtype) or `ValueError` (everything else)
//! and that names the argument, what was expected and what was given.

use tvm_ffi::{
    DLDataType, DLDataTypeCode, DLDataTypeExt, DLDevice, DLDeviceType, Result, TYPE_ERROR,
    TensorView, VALUE_ERROR, bail, ensure,
};

/// The element types that the kernels take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    F32,
    F16,
    BF16,
}

/// A tensor argument and the name under which its errors report it.
#[derive(Clone, Copy)]
pub struct Argument<'a> {
    pub name: &'static str,
    pub tensor: &'a TensorView,
}

impl<'a> Argument<'a> {
    pub fn new(name: &'static str, tensor: &'a TensorView) -> Self {
        Self { name, tensor }
    }

    /// The element type, or `TypeError` where no kernel takes it.
    pub fn dtype(&self) -> Result<DType> {
        let DLDataType { code, bits, lanes } = self.tensor.dtype();
        match (code, bits, lanes) {
            (code, 32, 1) if code == DLDataTypeCode::kDLFloat as u8 => Ok(DType::F32),
            (code, 16, 1) if code == DLDataTypeCode::kDLFloat as u8 => Ok(DType::F16),
            (code, 16, 1) if code == DLDataTypeCode::kDLBfloat as u8 => Ok(DType::BF16),
            _ => bail!(
                TYPE_ERROR,
                "{}: expected float32, float16 or bfloat16, got {}",
                self.name,
                DLDataTypeExt::to_string(&self.tensor.dtype()).as_str()
            ),
        }
    }

    /// `ValueError` unless the tensor is on a device of this type.
    pub fn on(&self, expected: DLDeviceType) -> Result<()> {
        let DLDevice {
            device_type,
            device_id,
        } = self.tensor.device();
        ensure!(
            device_type == expected,
            VALUE_ERROR,
            "{}: expected a tensor on {}, got one on {}:{device_id}",
            self.name,
            device_name(expected),
            device_name(device_type)
        );
        Ok(())
    }

    /// `ValueError` unless elements lie in row-major order without gaps, each at a multiple of its size.
    pub fn contiguous(&self) -> Result<()> {
        ensure!(
            self.tensor.is_contiguous(),
            VALUE_ERROR,
            "{}: must be contiguous, got shape {:?} with strides {:?}; pass {}.contiguous() (torch) or \
             numpy.ascontiguousarray({})",
            self.name,
            self.tensor.shape(),
            self.tensor.strides(),
            self.name,
            self.name
        );
        let size = usize::from(self.tensor.dtype().bits) / 8;
        ensure!(
            self.tensor.numel() == 0 || (self.data() as usize).is_multiple_of(size),
            VALUE_ERROR,
            "{}: its memory must begin at a multiple of {size} bytes; pass a copy",
            self.name
        );
        Ok(())
    }

    /// `ValueError` or `TypeError` unless shape, dtype and device equal those of `other`.
    pub fn like(&self, other: &Argument) -> Result<()> {
        ensure!(
            self.tensor.shape() == other.tensor.shape(),
            VALUE_ERROR,
            "{}: expected the shape of {}, {:?}, got {:?}",
            self.name,
            other.name,
            other.tensor.shape(),
            self.tensor.shape()
        );
        ensure!(
            self.tensor.dtype() == other.tensor.dtype(),
            TYPE_ERROR,
            "{}: expected the dtype of {}, {}, got {}",
            self.name,
            other.name,
            DLDataTypeExt::to_string(&other.tensor.dtype()).as_str(),
            DLDataTypeExt::to_string(&self.tensor.dtype()).as_str()
        );
        let (ours, theirs) = (self.tensor.device(), other.tensor.device());
        ensure!(
            ours == theirs,
            VALUE_ERROR,
            "{}: expected the device of {}, {}:{}, got {}:{}",
            self.name,
            other.name,
            device_name(theirs.device_type),
            theirs.device_id,
            device_name(ours.device_type),
            ours.device_id
        );
        Ok(())
    }

    /// `ValueError` where the memory of `other` begins elsewhere inside the memory of this tensor, or the reverse:
    /// an op may write over its input, but not over a part of it that it has still to read.
    pub fn same_or_apart(&self, other: &Argument) -> Result<()> {
        let (ours, theirs) = (self.bytes(), other.bytes());
        ensure!(
            ours == theirs || ours.end <= theirs.start || theirs.end <= ours.start,
            VALUE_ERROR,
            "{}: overlaps {} without being the same tensor",
            self.name,
            other.name
        );
        Ok(())
    }

    /// Address of the first element.
    pub fn data(&self) -> *mut u8 {
        // SAFETY: the caller of the op keeps its `DLTensor` alive during the call.
        let offset = unsafe { (*self.tensor.as_raw()).byte_offset };
        self.tensor
            .data_ptr()
            .cast::<u8>()
            .wrapping_add(offset as usize)
    }

    /// Addresses of a contiguous tensor's memory.
    fn bytes(&self) -> std::ops::Range<usize> {
        let start = self.data() as usize;
        start..start + self.tensor.numel() * usize::from(self.tensor.dtype().bits) / 8
    }
}

fn device_name(device: DLDeviceType) -> &'static str {
    match device {
        DLDeviceType::kDLCPU => "cpu",
        DLDeviceType::kDLCUDA => "cuda",
        _ => "another device",
    }
}
