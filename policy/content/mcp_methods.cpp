#include "policy/content/mcp_methods.hpp"

#include <algorithm>

namespace openshell::policy {
namespace {

constexpr auto kFirst = McpRevision::v2025_03_26;
constexpr auto kSecond = McpRevision::v2025_06_18;
constexpr auto kThird = McpRevision::v2025_11_25;

constexpr std::array<McpForm, 3> kForms{{{"2025-03-26", true}, {"2025-06-18", false}, {"2025-11-25", false}}};
constexpr std::array<McpRevision, 3> kRevisions{kFirst, kSecond, kThird};

constexpr std::array<McpParam, 3> kInitialize{
    {{"protocolVersion", McpType::text, true}, {"capabilities", McpType::object, true}, {"clientInfo", McpType::implementation, true}}};
constexpr std::array<McpParam, 1> kPage{{{"cursor", McpType::text, false}}};
constexpr std::array<McpParam, 3> kCall{
    {{"name", McpType::text, true}, {"arguments", McpType::object, false}, {"task", McpType::object, false}}};
constexpr std::array<McpParam, 1> kUri{{{"uri", McpType::text, true}}};
constexpr std::array<McpParam, 2> kPrompt{{{"name", McpType::text, true}, {"arguments", McpType::text_map, false}}};
constexpr std::array<McpParam, 3> kComplete{
    {{"ref", McpType::reference, true}, {"argument", McpType::argument, true}, {"context", McpType::object, false}}};
constexpr std::array<McpParam, 1> kLevel{{{"level", McpType::level, true}}};
constexpr std::array<McpParam, 1> kTask{{{"taskId", McpType::text, true}}};
constexpr std::array<McpParam, 2> kTaskStatus{{{"taskId", McpType::text, true}, {"status", McpType::text, true}}};
constexpr std::array<McpParam, 2> kCancelled{{{"requestId", McpType::token, false}, {"reason", McpType::text, false}}};
constexpr std::array<McpParam, 4> kProgress{{{"progressToken", McpType::token, true},
                                             {"progress", McpType::number, true},
                                             {"total", McpType::number, false},
                                             {"message", McpType::text, false}}};

constexpr McpMethodFacts request(std::string_view name, McpRevision since, std::span<const McpParam> params = {}) {
  return {name, true, false, since, params};
}
constexpr McpMethodFacts notice(std::string_view name, McpRevision since, std::span<const McpParam> params = {}) {
  return {name, true, true, since, params};
}
constexpr McpMethodFacts of_server(std::string_view name, bool notification, McpRevision since) {
  return {name, false, notification, since, {}};
}

constexpr std::array kMethods{
    request("tools/list", kFirst, kPage),
    request("tools/call", kFirst, kCall),
    request("resources/list", kFirst, kPage),
    request("resources/templates/list", kFirst, kPage),
    request("resources/read", kFirst, kUri),
    request("resources/subscribe", kFirst, kUri),
    request("resources/unsubscribe", kFirst, kUri),
    request("prompts/list", kFirst, kPage),
    request("prompts/get", kFirst, kPrompt),
    request("completion/complete", kFirst, kComplete),
    request("initialize", kFirst, kInitialize),
    request("ping", kFirst),
    request("logging/setLevel", kFirst, kLevel),
    notice("notifications/cancelled", kFirst, kCancelled),
    notice("notifications/initialized", kFirst),
    notice("notifications/progress", kFirst, kProgress),
    notice("notifications/roots/list_changed", kFirst),
    request("tasks/get", kThird, kTask),
    request("tasks/result", kThird, kTask),
    request("tasks/list", kThird, kPage),
    request("tasks/cancel", kThird, kTask),
    notice("notifications/tasks/status", kThird, kTaskStatus),
    of_server("sampling/createMessage", false, kFirst),
    of_server("roots/list", false, kFirst),
    of_server("elicitation/create", false, kSecond),
    of_server("notifications/message", true, kFirst),
    of_server("notifications/resources/updated", true, kFirst),
    of_server("notifications/resources/list_changed", true, kFirst),
    of_server("notifications/tools/list_changed", true, kFirst),
    of_server("notifications/prompts/list_changed", true, kFirst),
    of_server("notifications/elicitation/complete", true, kThird),
};

}  // namespace

const McpForm& form_of(McpRevision revision) { return kForms.at(static_cast<std::size_t>(revision)); }

const McpRevision* find_mcp_revision(std::string_view date) {
  const auto found = std::find_if(kRevisions.begin(), kRevisions.end(), [&](McpRevision one) { return form_of(one).date == date; });
  return found == kRevisions.end() ? nullptr : &*found;
}

const McpMethodFacts* find_mcp_method(std::string_view name) {
  const auto found = std::find_if(kMethods.begin(), kMethods.end(), [&](const McpMethodFacts& one) { return one.name == name; });
  return found == kMethods.end() ? nullptr : &*found;
}

std::span<const McpMethodFacts> mcp_methods() { return kMethods; }

}  // namespace openshell::policy
