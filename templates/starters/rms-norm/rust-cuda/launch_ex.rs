//! Launches by the driver's `cuLaunchKernelEx`, for kernels in the PTX for sm_90a: in clusters, whose blocks run at the
//! same time and reach each other's shared memory, and early, so that the blocks are there when the kernel before them
//! ends (CUDA C++ Programming Guide, "Thread Block Clusters" and "Programmatic Dependent Launch").

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;

use tvm_ffi::{DLDevice, Result, current_stream};

use crate::driver::{Driver, Handle, newer};
use crate::launch::{Entered, Kernel, Parameter, Shape};

/// The most blocks of a cluster that every device with clusters takes.
pub const MOST_BLOCKS: usize = 8;

// `CUlaunchAttributeID` of `cuda.h`.
const CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: c_uint = 4;
const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: c_uint = 6;
/// The version of the driver since which early launches can be captured into a graph: CUDA 12.3.
const EARLY: c_int = 12_030;

/// `CUlaunchAttribute` of `cuda.h`: what it is, and its value in the first of 64 bytes.
#[repr(C, align(8))]
struct Attribute {
    id: c_uint,
    pad: c_uint,
    value: [c_uint; 16],
}

impl Attribute {
    fn new(id: c_uint, first: [c_uint; 3]) -> Self {
        let mut value = [0; 16];
        value[..3].copy_from_slice(&first);
        Self { id, pad: 0, value }
    }
}

/// `CUlaunchConfig` of `cuda.h`.
#[repr(C)]
struct Config {
    blocks: [c_uint; 3],
    threads: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *const Attribute,
    count: c_uint,
}

/// `cuLaunchKernelEx` and `cuOccupancyMaxActiveClusters` of `cuda.h`, since CUDA 11.8.
#[derive(Clone, Copy)]
struct Functions {
    launch:
        unsafe extern "C" fn(*const Config, Handle, *mut *mut c_void, *mut *mut c_void) -> c_int,
    occupancy: unsafe extern "C" fn(*mut c_int, Handle, *const Config) -> c_int,
    /// Whether the driver is new enough for early launches.
    early: bool,
}

impl Functions {
    /// `None` where the driver lacks them.
    fn of(driver: &Driver) -> Option<Self> {
        static FUNCTIONS: OnceLock<Option<Functions>> = OnceLock::new();
        // SAFETY: the first writes one number; the others have their types in `cuda.h`.
        *FUNCTIONS.get_or_init(|| unsafe {
            let mut version = 0;
            let known = (driver.cuDriverGetVersion)(&mut version) == 0;
            Some(Self {
                launch: newer("cuLaunchKernelEx\0")?,
                occupancy: newer("cuOccupancyMaxActiveClusters\0")?,
                early: known && version >= EARLY,
            })
        })
    }
}

impl Config {
    fn new(shape: Shape, stream: Handle, attributes: &[Attribute]) -> Self {
        Self {
            blocks: shape.blocks.map(|blocks| blocks as c_uint),
            threads: [shape.threads, 1, 1],
            shared_bytes: shape.shared_bytes,
            stream,
            attributes: attributes.as_ptr(),
            count: attributes.len() as c_uint,
        }
    }
}

fn clusters_of(blocks: u32) -> Attribute {
    Attribute::new(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, [blocks, 1, 1])
}

/// How many clusters of so many blocks run at a time on a device, where nothing else does; 0 where the driver is too old
/// for them. The blocks of the shape do not matter.
pub fn clusters_at_a_time<const N: usize>(
    kernel: &Kernel<N>,
    device: DLDevice,
    shape: Shape,
    cluster: u32,
) -> Result<usize> {
    let Entered {
        driver, function, ..
    } = &kernel.enter(device, shape)?;
    let Some(functions) = Functions::of(driver) else {
        return Ok(0);
    };
    let blocks = [cluster as usize, 1, 1];
    let attributes = [clusters_of(cluster)];
    let config = Config::new(Shape { blocks, ..shape }, Handle(null_mut()), &attributes);
    let mut count = 0;
    // SAFETY: writes one number; the attributes are alive.
    let code = unsafe { (functions.occupancy)(&mut count, *function, &config) };
    driver.check(code, || kernel.problem(device, shape))?;
    Ok(count as usize)
}

/// As [`Kernel::launch`], in clusters of so many blocks, if more than 1, and early.
///
/// # Safety
/// As for [`Kernel::launch`]. The device must run the PTX for sm_90a ([`crate::module::target`]), whose kernel calls
/// `grid::begin` before it touches global memory. For more than 1, [`clusters_at_a_time`] must have said that there are
/// clusters, and the blocks be a multiple of one.
pub unsafe fn launch<const N: usize>(
    kernel: &Kernel<N>,
    device: DLDevice,
    shape: Shape,
    cluster: u32,
    parameters: [Parameter<'_>; N],
) -> Result<()> {
    if shape.blocks.contains(&0) {
        return Ok(());
    }
    let Entered {
        driver, function, ..
    } = &kernel.enter(device, shape)?;
    let Some(functions) = Functions::of(driver) else {
        // SAFETY: the caller's promise; without these functions it was told that there are no clusters.
        return unsafe { kernel.launch(device, shape, parameters) };
    };
    let early = Attribute::new(
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
        [1, 0, 0],
    );
    let attributes = [early, clusters_of(cluster)];
    // Clusters of one block come to the multiprocessors slower than blocks.
    let chosen = usize::from(!functions.early)..1 + usize::from(cluster > 1);
    let stream = Handle(current_stream(&device).cast());
    let config = Config::new(shape, stream, &attributes[chosen]);
    let mut addresses = parameters.each_ref().map(Parameter::address);
    // SAFETY: as in `Kernel::launch`; the attributes are alive.
    let code =
        unsafe { (functions.launch)(&config, *function, addresses.as_mut_ptr(), null_mut()) };
    driver.check(code, || kernel.problem(device, shape))
}
