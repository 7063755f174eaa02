/* gpu/driver.c and gpu/gpu.c on drivers of several ages, and on hosts without. */
#include "gpu/gpu_impl.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(driver, .timeout = 20);

static struct spw_driver driver;
static struct spw_error err;

Test(driver, no_library_is_no_driver)
{
    cr_expect_eq(spw_driver_open("libno-such-cuda.so.1", &driver, &err), -ENOENT);
    cr_expect(strstr(err.text, "libno-such-cuda.so.1"), "%s", err.text);
}

Test(driver, a_library_without_the_entry_is_too_old)
{
    cr_expect_eq(spw_driver_open("libc.so.6", &driver, &err), -ENOSYS);
    cr_expect(strstr(err.text, "older"), "%s", err.text);
}

Test(driver, a_stub_for_linking_is_no_driver)
{
    setenv("FAKE_CUDA_FAULTS", "Init:1:34", 1);
    cr_expect_eq(spw_driver_open(FAKE_CUDA, &driver, &err), -ENODEV);
    cr_expect(strstr(err.text, "stub"), "%s", err.text);
}

Test(driver, one_without_devices_says_so_in_its_own_word)
{
    setenv("FAKE_CUDA_DEVICES", "", 1);
    cr_expect_eq(spw_driver_open(FAKE_CUDA, &driver, &err), -ENODEV);
    cr_expect(strstr(err.text, "CUDA_ERROR_NO_DEVICE"), "%s", err.text);
}

Test(driver, a_function_that_is_missing_is_named)
{
    setenv("FAKE_CUDA_HIDE", "cuIpcOpenEventHandle", 1);
    cr_expect_eq(spw_driver_open(FAKE_CUDA, &driver, &err), -ENOSYS);
    cr_expect(strstr(err.text, "cuIpcOpenEventHandle"), "%s", err.text);
}

Test(driver, kernels_may_be_missing)
{
    setenv("FAKE_CUDA_HIDE", "cuLaunchKernel", 1);
    cr_expect_eq(spw_driver_open(FAKE_CUDA, &driver, &err), 0, "%s", err.text);
    cr_expect_null((void *)driver.LaunchKernel);
    cr_expect_not_null((void *)driver.ModuleLoadData);
}

/* A driver of 12.8 that is asked for the function of 13.0 gives its own, with one argument more. */
Test(driver, the_batch_call_is_that_of_the_drivers_version)
{
    const struct {
        const char *version;
        bool new, old;
    } all[] = {{"13000", true, false},
               {"13010", true, false},
               {"12080", false, true},
               {"12090", false, true},
               {"12040", false, false}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        setenv("FAKE_CUDA_VERSION", all[i].version, 1);
        cr_assert_eq(spw_driver_open(FAKE_CUDA, &driver, &err), 0, "%s", err.text);
        cr_expect_eq(driver.MemcpyBatchAsync != NULL, all[i].new, "%s", all[i].version);
        cr_expect_eq(driver.MemcpyBatchAsync_12 != NULL, all[i].old, "%s", all[i].version);
    }
}

Test(driver, errors_keep_apart_what_sticks)
{
    cr_expect_eq(spw_driver_errno(CUDA_SUCCESS), 0);
    cr_expect_eq(spw_driver_errno(CUDA_ERROR_ILLEGAL_ADDRESS), -ENODEV);
    cr_expect_eq(spw_driver_errno(CUDA_ERROR_LAUNCH_FAILED), -ENODEV);
    cr_expect_eq(spw_driver_errno(CUDA_ERROR_OUT_OF_MEMORY), -ENOMEM);
    cr_expect_eq(spw_driver_errno(CUDA_ERROR_INVALID_VALUE), -EINVAL);
    cr_expect_eq(spw_driver_errno(CUDA_ERROR_NOT_SUPPORTED), -ENOSYS);
    cr_expect_eq(spw_driver_errno(CUDA_ERROR_MAP_FAILED), -EIO);
    cr_expect(!spw_driver_is_sticky(CUDA_ERROR_NOT_READY));
    cr_expect(!spw_driver_is_sticky(CUDA_ERROR_OUT_OF_MEMORY));
    cr_expect(spw_driver_is_sticky(CUDA_ERROR_ECC_UNCORRECTABLE));
}

/* ---- GPUs ------------------------------------------------------------------------------------ */

#define A "GPU-aaaaaaaa-0000-0000-0000-000000000001"
#define B "GPU-bbbbbbbb-0000-0000-0000-000000000002"

static int open_gpu(const char *which, char uuid[SPW_GPU_UUID_TEXT])
{
    struct spw_gpu *gpu = NULL;
    setenv("FAKE_CUDA_DEVICES", A "@0000:10:00.0," B "@0000:90:00.0", 1);
    int status =
        spw_gpu_open(&(struct spw_gpu_config){.driver = FAKE_CUDA, .which = which}, &gpu, &err);
    if (status == 0)
        spw_gpu_uuid_print(spw_gpu_identity(gpu)->uuid, uuid);
    spw_gpu_close(gpu);
    return status;
}

Test(driver, CU_7_a_gpu_is_found_by_each_of_its_names)
{
    char uuid[SPW_GPU_UUID_TEXT];
    cr_expect(open_gpu(B, uuid) == 0 && strcmp(uuid, B) == 0);
    cr_expect(open_gpu("0000:90:00.0", uuid) == 0 && strcmp(uuid, B) == 0);
    cr_expect(open_gpu("0", uuid) == 0 && strcmp(uuid, A) == 0);
}

Test(driver, CU_7_the_uuid_means_the_same_gpu_whatever_is_visible)
{
    char uuid[SPW_GPU_UUID_TEXT];
    setenv("CUDA_VISIBLE_DEVICES", "1,0", 1);
    cr_expect(open_gpu("0", uuid) == 0 && strcmp(uuid, B) == 0, "another ordinal");
    cr_expect(open_gpu(A, uuid) == 0 && strcmp(uuid, A) == 0);
}

Test(driver, CU_7_an_unknown_gpu_is_refused_with_those_that_are_known)
{
    char uuid[SPW_GPU_UUID_TEXT];
    cr_expect_eq(open_gpu("GPU-cccccccc-0000-0000-0000-000000000003", uuid), -ENXIO);
    cr_expect(strstr(err.text, "GPU-cccccccc") && strstr(err.text, A) && strstr(err.text, B), "%s",
              err.text);
    cr_expect_eq(open_gpu("2", uuid), -ENXIO);
}
