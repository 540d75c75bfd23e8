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

impl DType {
    /// The name that Python gives it.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }
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
        self.dtype_among(&[DType::F32, DType::F16, DType::BF16])
    }

    /// The element type, or `TypeError` where it is none of `accepted`.
    pub fn dtype_among(&self, accepted: &[DType]) -> Result<DType> {
        let DLDataType { code, bits, lanes } = self.tensor.dtype();
        let dtype = match (code, bits, lanes) {
            (code, 32, 1) if code == DLDataTypeCode::kDLFloat as u8 => Some(DType::F32),
            (code, 16, 1) if code == DLDataTypeCode::kDLFloat as u8 => Some(DType::F16),
            (code, 16, 1) if code == DLDataTypeCode::kDLBfloat as u8 => Some(DType::BF16),
            _ => None,
        };
        let Some(dtype) = dtype.filter(|dtype| accepted.contains(dtype)) else {
            let (name, first) = (self.name, accepted[0].name());
            bail!(
                TYPE_ERROR,
                "{name}: expected {}, got {}; pass {name}.to(torch.{first}) (torch) or {name}.astype(\"{first}\") (numpy)",
                either(accepted),
                dtype_name(self.tensor.dtype())
            )
        };
        Ok(dtype)
    }

    /// `ValueError` unless the tensor is on a device of this type.
    pub fn on(&self, expected: DLDeviceType) -> Result<()> {
        let DLDevice {
            device_type,
            device_id,
        } = self.tensor.device();
        let (name, wanted) = (self.name, device_name(expected));
        ensure!(
            device_type == expected,
            VALUE_ERROR,
            "{name}: expected a tensor on {wanted}, got one on {}:{device_id}; pass {name}.to(\"{wanted}\")",
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
        self.same_dtype(other)?;
        self.same_device(other)
    }

    /// `TypeError` unless the dtype is that of `other`.
    pub fn same_dtype(&self, other: &Argument) -> Result<()> {
        ensure!(
            self.tensor.dtype() == other.tensor.dtype(),
            TYPE_ERROR,
            "{}: expected the dtype of {}, {}, got {}",
            self.name,
            other.name,
            dtype_name(other.tensor.dtype()),
            dtype_name(self.tensor.dtype())
        );
        Ok(())
    }

    /// `ValueError` unless the device is that of `other`.
    pub fn same_device(&self, other: &Argument) -> Result<()> {
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

    /// The sizes of `N` dimensions, whose names are in `names`, or `ValueError` where there are more or fewer.
    pub fn dimensions<const N: usize>(&self, names: &str) -> Result<[usize; N]> {
        let shape = self.tensor.shape();
        ensure!(
            shape.len() == N,
            VALUE_ERROR,
            "{}: expected {N} dimensions ({names}), got shape {shape:?}",
            self.name
        );
        Ok(std::array::from_fn(|dimension| shape[dimension] as usize))
    }

    /// `ValueError` unless the shape is this one, which comes from what `reason` names.
    pub fn shaped(&self, shape: &[usize], reason: &str) -> Result<()> {
        ensure!(
            self.tensor
                .shape()
                .iter()
                .map(|size| *size as usize)
                .eq(shape.iter().copied()),
            VALUE_ERROR,
            "{}: expected shape {shape:?}, by {reason}, got {:?}",
            self.name,
            self.tensor.shape()
        );
        Ok(())
    }

    /// Elements from one index of each of `N` dimensions to the next.
    pub fn strides<const N: usize>(&self) -> [isize; N] {
        // SAFETY: the caller of the op keeps its `DLTensor` alive during the call.
        if unsafe { (*self.tensor.as_raw()).strides.is_null() } {
            let sizes = self.tensor.shape();
            return std::array::from_fn(|dimension| {
                sizes[dimension + 1..].iter().product::<i64>() as isize
            });
        }
        std::array::from_fn(|dimension| self.tensor.strides()[dimension] as isize)
    }

    /// `ValueError` unless the elements of the last of four dimensions lie without gaps and the other strides and the
    /// address are multiples of `alignment` bytes.
    pub fn rows_contiguous(&self, alignment: usize) -> Result<()> {
        if self.tensor.numel() == 0 {
            return Ok(());
        }
        let strides = self.strides::<4>();
        ensure!(
            strides[3] == 1 || self.tensor.shape()[3] == 1,
            VALUE_ERROR,
            "{}: its last dimension must be contiguous, got shape {:?} with strides {strides:?}; pass \
             {}.contiguous() (torch) or numpy.ascontiguousarray({})",
            self.name,
            self.tensor.shape(),
            self.name,
            self.name
        );
        let size = usize::from(self.tensor.dtype().bits) / 8;
        let alignment = alignment.max(size);
        let aligned = |bytes: usize| bytes.is_multiple_of(alignment);
        let strides_aligned = self.tensor.shape()[..3]
            .iter()
            .zip(strides)
            .all(|(count, stride)| *count == 1 || aligned(stride.unsigned_abs() * size));
        ensure!(
            aligned(self.data() as usize) && strides_aligned,
            VALUE_ERROR,
            "{}: its address and strides must be multiples of {alignment} bytes, got strides {strides:?}; pass \
             {}.contiguous() (torch) or a copy",
            self.name,
            self.name
        );
        Ok(())
    }

    /// `ValueError` where the memory that the tensor spans overlaps that of `other`.
    pub fn apart(&self, other: &Argument) -> Result<()> {
        let (ours, theirs) = (self.span(), other.span());
        ensure!(
            ours.end <= theirs.start || theirs.end <= ours.start,
            VALUE_ERROR,
            "{}: overlaps {}; pass memory of its own",
            self.name,
            other.name
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

    /// Addresses from the first to the last element of a tensor with any strides; the same twice for an empty one.
    fn span(&self) -> std::ops::Range<usize> {
        let data = self.data() as usize;
        if self.tensor.numel() == 0 {
            return data..data;
        }
        if self.tensor.is_contiguous() {
            return self.bytes();
        }
        let size = isize::from(self.tensor.dtype().bits as i16) / 8;
        let (mut before, mut after) = (0, size);
        for (count, stride) in self.tensor.shape().iter().zip(self.tensor.strides()) {
            let reach = (*count as isize - 1) * *stride as isize * size;
            before += reach.min(0);
            after += reach.max(0);
        }
        data.wrapping_add_signed(before)..data.wrapping_add_signed(after)
    }

    /// Addresses of a contiguous tensor's memory.
    fn bytes(&self) -> std::ops::Range<usize> {
        let start = self.data() as usize;
        start..start + self.tensor.numel() * usize::from(self.tensor.dtype().bits) / 8
    }
}

/// "float32, float16 or bfloat16".
fn either(dtypes: &[DType]) -> String {
    let names: Vec<_> = dtypes.iter().map(|dtype| dtype.name()).collect();
    match names.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

/// The dtype as Python names it. tvm-ffi has names for real numbers only, and panics for others.
fn dtype_name(dtype: DLDataType) -> String {
    const COMPLEX: u8 = DLDataTypeCode::kDLComplex as u8;
    const LAST: u8 = DLDataTypeCode::kDLFloat4_e2m1fn as u8;
    match dtype.code {
        COMPLEX => format!("complex{}", dtype.bits),
        0..=LAST => DLDataTypeExt::to_string(&dtype).as_str().to_owned(),
        unknown => format!("a dtype of code {unknown}"),
    }
}

fn device_name(device: DLDeviceType) -> &'static str {
    match device {
        DLDeviceType::kDLCPU => "cpu",
        DLDeviceType::kDLCUDA => "cuda",
        _ => "another device",
    }
}
