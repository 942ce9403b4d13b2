/* SPDX-License-Identifier: MIT
 *
 * Profiles of work that is the host's own.
 */
#include "profile/ceilings.h"
#include "verify/verify.h"

typedef struct caller {
    stitch__device *dev;
    const stitch__scope *scope;
    stitch_region_fn fn;
    void *userdata;
    stitch_error *why; /* the device's, after a run */
    bool gave_up;
} caller;

static int call(void *userdata, bool plain, const stitch__pause *pause)
{
    caller *c = userdata;

    (void)plain, (void)pause; /* the host's work is what it is */
    if (c->fn(c->userdata)) {
        c->gave_up = true;
        return STITCH_E_CANCELLED;
    }
    return stitch__context_wait(c->dev, c->scope, "the profiled work", &c->why);
}

static int take_modules(stitch_context *ctx, const stitch_profile_options *o, stitch__sampled_module **out,
                        stitch_error **err)
{
    *out = stitch__calloc(ctx, o->image_count + 1, sizeof(**out));
    if (!*out)
        return stitch__err_nomem(ctx, err);
    for (size_t i = 0; i < o->image_count; i++) {
        (*out)[i].cubin = stitch_image_data(o->images[i], &(*out)[i].cubin_size);
        (*out)[i].source = o->sources ? o->sources[i] : NULL;
    }
    return STITCH_OK;
}

static int collect(stitch_context *ctx, caller *c, const stitch_profile_options *o,
                   const stitch__collect_options *options, stitch__facts *f, stitch_error **err)
{
    stitch__sampled_module *modules = NULL;
    stitch__region region = {.run = call, .userdata = c, .module_count = o->image_count};
    int rc = take_modules(ctx, o, &modules, err);

    region.modules = modules;
    if (!rc)
        rc = stitch__profile_collect(ctx, c->dev, c->scope, &region, options, f, err);
    if (rc && c->gave_up)
        rc = stitch__err(ctx, err, STITCH_E_CANCELLED, "the profiled function gave up");
    else if (rc && c->why)
        stitch__err_hand_on(err, &c->why);
    stitch_free(modules);
    return rc;
}

/* The device is locked only while its ceilings are measured, for the region may verify something, which locks it, too.
 */
static int make(stitch_context *ctx, caller *c, stitch__facts *f, stitch_profile **out, stitch_error **err)
{
    stitch__gpu_lock lock = STITCH__GPU_LOCK_INIT;
    int rc = STITCH_OK;

    if (!stitch__ceilings_kept(ctx, c->dev))
        rc = stitch__gpu_lock_take(c->dev, c->scope, true, &lock, NULL, err);
    if (rc)
        stitch__facts_free(f);
    else
        rc = stitch__profile_make(ctx, c->dev, c->scope, f, out, err);
    stitch__gpu_lock_release(&lock);
    return rc;
}

static int profile(stitch_context *ctx, caller *c, const stitch_profile_options *o,
                   const stitch__collect_options *options, stitch_profile **out, stitch_error **err)
{
    stitch__facts *f = NULL;
    int rc = stitch__facts_new(ctx, &f, err);

    if (!rc)
        rc = collect(ctx, c, o, options, f, err);
    if (!rc)
        return make(ctx, c, f, out, err);
    stitch__facts_free(f);
    return rc;
}

int stitch_profile_region(stitch_context *ctx, stitch_region_fn fn, void *userdata,
                          const stitch_profile_options *options, stitch_profile **out, stitch_error **err)
{
    stitch_profile_options o = STITCH_PROFILE_OPTIONS_INIT;
    stitch__collect_options what;
    stitch__device *dev = NULL;
    stitch__scope scope;
    int rc;

    if (out)
        *out = NULL;
    if (!ctx || !fn || !out)
        return stitch__err(ctx, err, STITCH_E_INVALID,
                           "stitch_profile_region: needs a context, a function and room for the profile");
    rc = stitch__profile_options_resolve(ctx, options, &o, &what, err);
    if (!rc && !what.parts)
        rc = stitch__err(ctx, err, STITCH_E_INVALID, "stitch_profile_region: profile is STITCH_PROFILE_NEVER");
    if (!rc)
        rc = stitch__device_get(ctx, &dev, err);
    if (!rc && dev->info.simulated)
        rc = stitch__err(ctx, err, STITCH_E_UNSUPPORTED,
                         "the device is simulated: it has no time to profile, and counts only what is verified");
    if (!rc)
        rc = stitch__device_enter(dev, err);
    if (rc)
        return rc;
    scope = stitch__scope_make(ctx, o.cancel, o.timeout_ms);
    caller c = {.dev = dev, .scope = &scope, .fn = fn, .userdata = userdata};
    rc = profile(ctx, &c, &o, &what, out, err);
    stitch__profile_explain(rc, &o, err);
    stitch_error_free(c.why);
    stitch__device_leave(dev);
    return rc;
}
