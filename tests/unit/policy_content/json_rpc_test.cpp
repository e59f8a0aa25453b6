#include "policy/content/json_rpc.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace openshell::policy {
namespace {

RpcContents post(std::string_view body) { return inspect_json_rpc({"POST", false, {}, body}); }

TEST(JsonRpc, L7_08_CallsAreTakenOutInOrder) {
  const auto one = post(R"({"jsonrpc":"2.0","id":1,"method":"reports.list","params":{"tool":"x"}})");
  ASSERT_EQ(one.refusal, "");
  ASSERT_EQ(one.contents.size(), 1U);
  EXPECT_EQ(one.contents[0].method, "reports.list");
  EXPECT_TRUE(one.contents[0].params.empty()) << "case 35: params of generic JSON-RPC never count";
  EXPECT_FALSE(one.contents[0].tool);
  const auto batch = post(R"([{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":null,"method":"b","params":[1]}])");
  ASSERT_EQ(batch.contents.size(), 2U);
  EXPECT_EQ(batch.contents[1].method, "b");
}

TEST(JsonRpc, EveryRowOfMalformedBodies) {
  const std::vector<std::pair<std::string, std::string>> rows{
      {"", "invalid JSON"},
      {"{", "invalid JSON"},
      {R"({"jsonrpc":"2.0","method":"a","method":"b"})", "duplicate key in JSON object"},
      {R"({"jsonrpc":"2.0","method":"a","params":{"k":1,"k":2}})", "duplicate key in JSON object"},
      {"[]", "empty batch"},
      {"7", "JSON-RPC message is not an object"},
      {R"([{"jsonrpc":"2.0","method":"a"},3])", "batch item invalid: JSON-RPC message is not an object"},
      {R"([{"jsonrpc":"2.0","method":"a"},{"method":"b"}])", "batch item invalid: missing or non-string 'jsonrpc' field"},
      {R"({"method":"a"})", "missing or non-string 'jsonrpc' field"},
      {R"({"jsonrpc":2.0,"method":"a"})", "missing or non-string 'jsonrpc' field"},
      {R"({"jsonrpc":"1.0","method":"a"})", "unsupported JSON-RPC version '1.0'"},
      {R"({"jsonrpc":"2.0","method":"a","result":1})", "JSON-RPC message includes both method and result/error"},
      {R"({"jsonrpc":"2.0","id":1,"result":1,"error":{}})", "JSON-RPC response includes both result and error"},
      {R"({"jsonrpc":"2.0","result":1})", "JSON-RPC response missing id"},
      {R"({"jsonrpc":"2.0","id":[],"result":1})", "JSON-RPC response id must be string, number, or null"},
      {R"({"jsonrpc":"2.0","id":1,"error":"x"})", "JSON-RPC response error must be an object"},
      {R"({"jsonrpc":"2.0","id":1})", "missing or non-string 'method' field"},
      {R"({"jsonrpc":"2.0","method":null})", "missing or non-string 'method' field"},
      {R"({"jsonrpc":"2.0","method":""})", "empty 'method' field"},
      {R"({"jsonrpc":"2.0","id":{},"method":"a"})", "JSON-RPC request id must be string, number, or null"},
      {R"({"jsonrpc":"2.0","Method":"a","method":"b"})", "JSON-RPC key differs from the protocol's in case only"},
      {R"({"jsonrpc":"2.0","method":"a"} {})", "invalid JSON"},
  };
  for (const auto& [body, fault] : rows) EXPECT_EQ(post(body).refusal, "JSON-RPC request rejected: " + fault) << body;
}

TEST(JsonRpc, ResponsesAreNotForClientsToSend) {
  EXPECT_EQ(post(R"({"jsonrpc":"2.0","id":1,"result":null})").refusal, "JSON-RPC response frames are not permitted from client to server");
  EXPECT_EQ(post(R"([{"jsonrpc":"2.0","method":"a"},{"jsonrpc":"2.0","id":1,"error":{"code":1}}])").refusal,
            "JSON-RPC response frames are not permitted from client to server");
}

TEST(JsonRpc, RequestsWithoutABody) {
  const auto stream = inspect_json_rpc({"GET", true, {}, ""});
  ASSERT_EQ(stream.contents.size(), 1U);
  EXPECT_TRUE(stream.contents[0].receive_stream);
  EXPECT_FALSE(stream.contents[0].method);
  EXPECT_FALSE(inspect_json_rpc({"GET", false, {}, ""}).contents.at(0).receive_stream);
  EXPECT_FALSE(inspect_json_rpc({"DELETE", true, {}, ""}).contents.at(0).receive_stream);
  EXPECT_NE(inspect_json_rpc({"GET", true, {}, "x"}).refusal, "");
}

TEST(JsonRpc, BodiesThatAServerMightDecodeOtherwise) {
  constexpr std::string_view kBody = R"({"jsonrpc":"2.0","method":"a"})";
  EXPECT_NE(inspect_json_rpc({"POST", false, {{}, {"gzip"}}, kBody}).refusal, "");
  EXPECT_NE(inspect_json_rpc({"POST", false, {{"application/json; charset=utf-16"}, {}}, kBody}).refusal, "");
  EXPECT_EQ(inspect_json_rpc({"POST", false, {{"application/json; charset=utf-8"}, {}}, kBody}).refusal, "");
}

TEST(JsonRpc, ABatchHasABound) {
  const auto batch = [](std::size_t size) {
    std::string out = "[";
    for (std::size_t i = 0; i < size; ++i) out += std::string{i == 0 ? "" : ","} + R"({"jsonrpc":"2.0","method":"a"})";
    return out + "]";
  };
  EXPECT_EQ(post(batch(kMaxJsonRpcBatch)).contents.size(), kMaxJsonRpcBatch);
  EXPECT_EQ(post(batch(kMaxJsonRpcBatch + 1)).refusal, "JSON-RPC request rejected: batch item invalid: batch has too many members");
}

}  // namespace
}  // namespace openshell::policy
