#include "policy/content/mcp.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/mcp_versions.hpp"

namespace openshell::policy {
namespace {

using testing::HasSubstr;
using Texts = std::vector<std::string_view>;

const Texts kAll{"2025-03-26", "2025-06-18", "2025-11-25"};
const Texts kLatest{"2025-11-25"};

McpInspection post(std::string_view body, const Texts& versions = {"2025-11-25"}, const Texts& allowed = kAll, bool strict = true) {
  return inspect_mcp({"POST", true, {}, body}, versions, allowed, strict);
}
std::string code_of(const McpInspection& inspection) {
  return inspection.refusal ? std::to_string(inspection.refusal->status) + " " + std::string{inspection.refusal->code} : "";
}
std::string call(std::string_view method, std::string_view params = "", bool id = true) {
  return std::string{R"({"jsonrpc":"2.0",)"} + (id ? R"("id":1,)" : "") + R"("method":")" + std::string{method} + "\"" +
         (params.empty() ? "" : ",\"params\":" + std::string{params}) + "}";
}

TEST(Mcp, L7_19_TheRegistryIsThatOfThePolicyLanguage) {
  for (std::size_t i = 0; i < kMcpVersions.size(); ++i) {
    const auto* revision = find_mcp_revision(kMcpVersions.at(i));
    ASSERT_NE(revision, nullptr);
    EXPECT_EQ(static_cast<std::size_t>(*revision), i) << "in the order of their dates";
  }
  EXPECT_EQ(find_mcp_revision("2026-07-28"), nullptr);
  EXPECT_EQ(find_mcp_revision("2025-11-25 "), nullptr);
}

TEST(Mcp, L7_37_L7_39_OnlyTheFirstRevisionHasBatches) {
  EXPECT_TRUE(form_of(McpRevision::v2025_03_26).batches);
  EXPECT_FALSE(form_of(McpRevision::v2025_06_18).batches);
  EXPECT_FALSE(form_of(McpRevision::v2025_11_25).batches);
  const std::string batch = "[" + call("ping") + "]";
  EXPECT_EQ(code_of(post(batch, {"2025-03-26"})), "");
  EXPECT_EQ(code_of(post(batch, {"2025-06-18"})), "400 invalid_mcp_request") << "L7-43: the header's revision alone counts";
  EXPECT_EQ(code_of(post(batch, {"2025-11-25"})), "400 invalid_mcp_request");
}

TEST(Mcp, L7_38_ABatchHasSixtyFourMembers) {
  const auto batch = [](std::size_t size) {
    std::string out = "[";
    for (std::size_t i = 0; i < size; ++i) out += (i == 0 ? "" : ",") + call("ping");
    return out + "]";
  };
  static_assert(kMaxMcpBatch == 64);
  EXPECT_EQ(post(batch(64), {"2025-03-26"}).contents.size(), 64U);
  EXPECT_EQ(code_of(post(batch(65), {"2025-03-26"})), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post("[]", {"2025-03-26"})), "400 invalid_mcp_request");
  const std::string response = R"({"jsonrpc":"2.0","id":1,"result":{}})";
  EXPECT_TRUE(post("[" + response + "," + response + "]", {"2025-03-26"}).contents.at(0).has_response);
  EXPECT_EQ(code_of(post("[" + response + "," + call("ping") + "]", {"2025-03-26"})), "400 invalid_mcp_request");
  EXPECT_EQ(
      code_of(post("[" + call("initialize", R"({"protocolVersion":"x","capabilities":{},"clientInfo":{"name":"a","version":"1"}})") + "]",
                   {"2025-03-26"})),
      "400 invalid_mcp_request");
}

TEST(Mcp, L7_40_L7_42_TheHeaderChoosesAndTheListOnlyAdmits) {
  for (const auto* method : {"POST", "GET", "DELETE"}) {
    const auto ask = [&](const Texts& headers, const Texts& allowed) {
      const std::string body = std::string_view{method} == "POST" ? call("ping") : "";
      return code_of(inspect_mcp({method, true, {}, body}, headers, allowed, true));
    };
    EXPECT_EQ(ask({"2025-11-25"}, kLatest), "") << method;
    EXPECT_EQ(ask({" \t2025-11-25\t"}, kLatest), "") << method;
    EXPECT_EQ(ask({"2025-06-18"}, kLatest), "403 mcp_protocol_version_not_allowed") << method;
    EXPECT_EQ(ask({}, kLatest), "403 mcp_protocol_version_not_allowed") << method << ": without a header it is the first revision";
    EXPECT_EQ(ask({}, {"2025-03-26"}), "") << method;
    for (const auto* bad : {"2025-11-25x", "2025-11-25, 2025-06-18",
                            "\xC2\xA0"
                            "2025-11-25",
                            "2026-07-28", "latest", "draft"}) {
      EXPECT_EQ(ask({bad}, kAll), "400 unsupported_mcp_protocol_version") << method << bad;
    }
    EXPECT_EQ(ask({""}, kAll), "400 invalid_mcp_protocol_version_header") << method;
    EXPECT_EQ(ask({" "}, kAll), "400 invalid_mcp_protocol_version_header") << method;
    EXPECT_EQ(ask({"2025-11-25", "2025-11-25"}, kAll), "400 invalid_mcp_protocol_version_header") << method;
  }
  EXPECT_EQ(
      post(call("ping"), {}, kLatest).refusal->detail,
      "MCP protocol version 2025-03-26 is not allowed by endpoint policy (assumed, since the request has no MCP-Protocol-Version header)");
}

TEST(Mcp, L7_41_L7_44_InitializeProposesAndBindsNothing) {
  constexpr std::string_view kParams = R"({"protocolVersion":"2030-01-01","capabilities":{},"clientInfo":{"name":"a","version":"1"}})";
  EXPECT_EQ(code_of(post(call("initialize", kParams), {}, kLatest)), "") << "no revision is agreed on yet";
  EXPECT_EQ(code_of(post(call("initialize", kParams), {"nonsense"}, kLatest)), "");
  EXPECT_EQ(code_of(post(call("initialize", kParams, false), {}, kLatest)), "403 mcp_protocol_version_not_allowed")
      << "a notification is not exempt";
  EXPECT_EQ(code_of(post(call("ping"), {}, kLatest)), "403 mcp_protocol_version_not_allowed") << "nor what follows";
  EXPECT_EQ(code_of(post(call("initialize", R"({"capabilities":{}})"), {}, kLatest)), "400 invalid_mcp_request");
}

TEST(Mcp, L7_06_L7_07_OnlyToolCallsShowTheirName) {
  const auto tool = post(call("tools/call", R"({"name":"search","arguments":{"name":"other","path":"/"}})"));
  ASSERT_EQ(code_of(tool), "");
  EXPECT_EQ(tool.contents[0].tool, "search");
  EXPECT_EQ(tool.contents[0].params.at("name"), "search");
  EXPECT_EQ(tool.contents[0].params.size(), 1U);
  EXPECT_EQ(tool.contents[0].classification, McpMethod::available);
  const auto prompt = post(call("prompts/get", R"({"name":"p","arguments":{"a":"b"}})"));
  EXPECT_FALSE(prompt.contents[0].tool);
  EXPECT_TRUE(prompt.contents[0].params.empty());
  const auto extension = post(call("acme/reports", "[1]", false));
  EXPECT_EQ(extension.contents[0].classification, McpMethod::extension);
  EXPECT_EQ(extension.contents[0].method, "acme/reports");
}

TEST(Mcp, L7_12_L7_13_L7_14_ToolNamesBeforeAnyRule) {
  const auto named = [](std::string_view name, bool strict) {
    return code_of(post(call("tools/call", "{\"name\":\"" + std::string{name} + "\"}"), {"2025-11-25"}, kAll, strict));
  };
  EXPECT_EQ(named("a-Z_0.9", true), "");
  EXPECT_EQ(named(std::string(128, 'a'), true), "");
  for (const std::string bad : {"a b", "", "a/b", "a\\u0000", "\\u00e9", "a*", "a\\n"}) {
    EXPECT_EQ(named(bad, true), "400 invalid_mcp_request") << bad;
    EXPECT_EQ(named(bad, false), "") << bad;
  }
  EXPECT_EQ(named(std::string(129, 'a'), true), "400 invalid_mcp_request");
}

TEST(Mcp, MethodsOfARevisionAndOfTheOtherSide) {
  EXPECT_EQ(code_of(post(call("tasks/get", R"({"taskId":"t"})"), {"2025-11-25"})), "");
  EXPECT_EQ(code_of(post(call("tasks/get", R"({"taskId":"t"})"), {"2025-06-18"})), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post(call("sampling/createMessage", "{}"))), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post(call("notifications/message", "{}", false))), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post(call("Tools/call", R"({"name":"a"})"))), "")
      << "method names have a case: an extension, which only an exact rule allows";
  EXPECT_EQ(post(call("Tools/call", R"({"name":"a"})")).contents[0].classification, McpMethod::extension);
}

TEST(Mcp, RequestsHaveAnIdNotificationsHaveNone) {
  EXPECT_EQ(code_of(post(call("tools/call", R"({"name":"a"})", false))), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post(call("notifications/initialized", "", true))), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post(call("notifications/initialized", "", false))), "");
  EXPECT_EQ(code_of(post(R"({"jsonrpc":"2.0","id":null,"method":"ping"})")), "400 invalid_mcp_request");
}

TEST(Mcp, ParamsOfKnownMethods) {
  const std::vector<std::pair<std::string, std::string>> good{
      {"tools/list", ""},
      {"tools/list", R"({"cursor":"c","_meta":{"progressToken":1,"x":[]}})"},
      {"resources/read", R"({"uri":"file:///a"})"},
      {"completion/complete", R"({"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":"v"},"context":{}})"},
      {"completion/complete", R"({"ref":{"type":"ref/resource","uri":"u"},"argument":{"name":"a","value":"v"}})"},
      {"logging/setLevel", R"({"level":"notice"})"},
      {"tools/call", R"({"name":"a","task":{"ttl":1}})"},
      {"tasks/list", R"({})"}};
  for (const auto& [method, params] : good) EXPECT_EQ(code_of(post(call(method, params))), "") << method << params;
  const std::vector<std::pair<std::string, std::string>> bad{
      {"tools/list", "[]"},
      {"tools/list", "null"},
      {"tools/list", R"({"cursor":7})"},
      {"tools/list", R"({"_meta":7})"},
      {"tools/call", ""},
      {"tools/call", "{}"},
      {"tools/call", R"({"name":7})"},
      {"tools/call", R"({"name":"a","arguments":[]})"},
      {"tools/call", R"({"name":"a","Name":"b"})"},
      {"resources/read", R"({"uri":[]})"},
      {"prompts/get", R"({"name":"p","arguments":{"a":1}})"},
      {"completion/complete", R"({"ref":{"type":"ref/tool","name":"p"},"argument":{"name":"a","value":"v"}})"},
      {"completion/complete", R"({"ref":{"type":"ref/prompt"},"argument":{"name":"a","value":"v"}})"},
      {"completion/complete", R"({"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a"}})"},
      {"logging/setLevel", R"({"level":"loud"})"}};
  for (const auto& [method, params] : bad) {
    const auto inspection = post(call(method, params));
    EXPECT_EQ(code_of(inspection), "400 invalid_mcp_request") << method << params;
    EXPECT_THAT(inspection.refusal->detail, HasSubstr("invalid MCP request params: ")) << method << params;
  }
  EXPECT_EQ(code_of(post(call("notifications/cancelled", "{}", false), {"2025-11-25"})), "");
  EXPECT_EQ(code_of(post(call("notifications/cancelled", "{}", false), {"2025-06-18"})), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post(call("notifications/progress", R"({"progressToken":"t","progress":0.5})", false))), "");
  EXPECT_THAT(post(call("notifications/progress", R"({"progressToken":"t"})", false)).refusal->detail,
              HasSubstr("invalid MCP notification params: missing progress"));
}

TEST(Mcp, AReceiveStreamAndBrokenBodies) {
  EXPECT_TRUE(inspect_mcp({"GET", true, {}, ""}, kLatest, kLatest, true).contents.at(0).receive_stream);
  EXPECT_FALSE(inspect_mcp({"GET", false, {}, ""}, kLatest, kLatest, true).contents.at(0).receive_stream);
  EXPECT_EQ(code_of(post("{")), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post("")), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post(R"({"jsonrpc":"2.0","id":1,"method":"ping","method":"ping"})")), "400 invalid_mcp_request");
  EXPECT_EQ(code_of(post("{", {}, kLatest)), "403 mcp_protocol_version_not_allowed") << "the revision is asked for first";
  EXPECT_TRUE(post(R"({"jsonrpc":"2.0","id":"x","result":{}})").contents.at(0).has_response);
}

}  // namespace
}  // namespace openshell::policy
