/* Policies and their names. */
#include "tools/policy.h"

#include <inttypes.h>
#include <stdio.h>

void spw_policy_name(struct spw_policy *policy)
{
    char budget[32] = "";

    if (policy->budget_tokens == SPW_RECOMPUTE_AUTO)
        snprintf(budget, sizeof(budget), "auto");
    else if (policy->budget_tokens > 0)
        snprintf(budget, sizeof(budget), "budget:%" PRId64, policy->budget_tokens);
    else if (!policy->awaited)
        snprintf(budget, sizeof(budget), "always-wait");
    snprintf(policy->name, sizeof(policy->name), "%s%s%s", policy->awaited ? "awaited" : "",
             policy->awaited && budget[0] ? "+" : "", budget);
}

void spw_policy_list(uint32_t chunk_tokens, struct spw_policy out_policies[SPW_POLICIES_COMPARED])
{
    static const struct {
        int64_t budget; /* chunks, but for auto */
        bool awaited;
    } list[SPW_POLICIES_COMPARED] = {
        {0, false},  {1, false}, {4, false}, {16, false},
        {64, false}, {0, true},  {4, true},  {SPW_RECOMPUTE_AUTO, true},
    };

    for (size_t i = 0; i < SPW_POLICIES_COMPARED; i++) {
        struct spw_policy *policy = &out_policies[i];

        *policy = (struct spw_policy){
            .budget_tokens = list[i].budget, .price = SPW_POLICY_PRICE, .awaited = list[i].awaited};
        if (policy->budget_tokens != SPW_RECOMPUTE_AUTO)
            policy->budget_tokens *= chunk_tokens;
        spw_policy_name(policy);
    }
}
