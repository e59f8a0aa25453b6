// What every sandbox holds for the agent that works in it: how to read its policy, and how to ask for more. Static text of the release,
// mounted read-only by each driver; with proposals switched off `policy.local` says so itself.
#pragma once

#include <string_view>

namespace openshell::drivers {

inline constexpr std::string_view kSkillPath = "/etc/openshell/skills/policy_advisor.md";
inline constexpr std::string_view kSkillFolderPath = "/etc/openshell/skills/policy-advisor/SKILL.md";
inline constexpr std::string_view kAgentsPath = "/AGENTS.md";

inline constexpr std::string_view kSkillText = R"(---
name: policy-advisor
description: What to do when this sandbox refuses a connection or a request - read why, propose the narrowest rule, wait for a person.
---

# You work under a policy

This sandbox lets programs reach only what its policy names. A refused connection fails with "Permission denied"; a refused request on an
allowed connection is answered with HTTP 403 and a JSON body. That is no defect of the network. Do not look for a way around it, and do not
give up: ask for the rule that you need.

Everything below is plain HTTP on port 80 of `policy.local`, from inside the sandbox only.

1. **Read the answer.** The 403 body has `host`, `port`, `binary`, `method`, `path` and `rule_missing`.
   For a refused connection ask what was denied: `curl -s http://policy.local/v1/denials?last=5`
2. **Read the policy**: `curl -s http://policy.local/v1/policy/current`
3. **Propose the narrowest rule** that does the job: one host, one port, your program, the method and path that you need. Never a wildcard
   where a name will do, never `access: full` where one method will do. Say why in `intent_summary`; a person reads it.

   ```
   curl -s -X POST http://policy.local/v1/proposals -d '{
     "intent_summary": "open an issue in acme/tools, as the task asks",
     "operations": [{"addRule": {"ruleName": "acme_issues", "rule": {
       "endpoints": [{"host": "api.example.com", "port": 443, "protocol": "rest", "enforcement": "enforce",
                      "rules": [{"allow": {"method": "POST", "path": "/repos/acme/tools/issues"}}]}],
       "binaries": [{"path": "/usr/bin/curl"}]}}}]}'
   ```

   The answer holds `accepted_chunk_ids`, or says in `rejection_reasons` what is wrong with it. `protocol: tcp`, `protocol: sql` and
   `tls: skip` can not be proposed.
4. **Wait for the decision**: `curl -s "http://policy.local/v1/proposals/ID/wait?timeout=300"`. With `"timed_out": true` ask again.
   With `"status": "approved"` and `"policy_reloaded": true` retry the refused request, once.
   With `"status": "rejected"` read `rejection_reason`, and do as it says; do not propose the same again.
)";

inline constexpr std::string_view kAgentsText =
    "This sandbox works under a policy. Where a connection or a request is refused, read /etc/openshell/skills/policy_advisor.md and "
    "follow "
    "it.\n";

}  // namespace openshell::drivers
