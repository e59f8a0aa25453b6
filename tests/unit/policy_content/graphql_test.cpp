#include "policy/content/graphql.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/content/graphql_document.hpp"

namespace openshell::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Query = std::vector<std::pair<std::string, std::string>>;

GraphqlDefinition read(std::string_view document, std::string_view name = "") {
  auto out = read_graphql_document(document, name);
  EXPECT_TRUE(out.ok()) << document << ": " << out.status();
  return out.ok() ? *out : GraphqlDefinition{};
}
std::string fault_of(std::string_view document, std::string_view name = "") {
  return std::string{read_graphql_document(document, name).status().message()};
}

TEST(GraphqlDocument, L7_04_OperationsAndTheirRootFields) {
  EXPECT_EQ(read("{ viewer }").type, "query");
  const auto named = read("mutation Add($a: [Int!]! = [1] @d, $b: In) @x(y: {z: $a}) { b: createItem(i: $a) { id } a }");
  EXPECT_EQ(named.type, "mutation");
  EXPECT_EQ(named.name, "Add");
  EXPECT_THAT(named.fields, ElementsAre("a", "createItem")) << "an alias hides no field";
  EXPECT_EQ(read("subscription{a}").type, "subscription");
  EXPECT_EQ(read("query query { query }").name, "query");
  EXPECT_THAT(read("{ on fragment: true null }").fields, ElementsAre("null", "on", "true"));
}

TEST(GraphqlDocument, L7_04_FragmentsAreFollowedToTheRoot) {
  EXPECT_THAT(
      read("query { a ... on Q { b ... @include(if: true) { c } } ...F } fragment F on Q { d ...G } fragment G on Q { e { x } ...F }")
          .fields,
      ElementsAre("a", "b", "c", "d", "e"))
      << "a cycle ends";
  EXPECT_THAT(read("fragment F on Q { z } { a { ...F } }").fields, ElementsAre("a")) << "below the root nothing counts";
  EXPECT_EQ(fault_of("{ ...F }"), "the document uses a fragment that it does not define");
  EXPECT_EQ(fault_of("{ a { ...F } }"), "the document uses a fragment that it does not define");
  EXPECT_EQ(fault_of("{ ...F } fragment F on Q { a } fragment F on Q { deleteAll }"), "the document defines a fragment twice");
}

TEST(GraphqlDocument, WhichOperationRunsIsNeverGuessed) {
  constexpr std::string_view kTwo = "query A { a } mutation B { b }";
  EXPECT_THAT(fault_of(kTwo), HasSubstr("operationName is needed"));
  EXPECT_EQ(read(kTwo, "B").type, "mutation");
  EXPECT_EQ(fault_of(kTwo, "C"), "operationName names no operation of the document");
  EXPECT_EQ(fault_of("{ a }", "C"), "operationName names no operation of the document");
  EXPECT_EQ(fault_of("query A { a } mutation A { b }", "A"), "the document has two operations of one name");
  EXPECT_EQ(fault_of("{ a } { b }"), "the document has an unnamed operation beside another");
  EXPECT_EQ(fault_of("query A { a } { b }", "A"), "the document has an unnamed operation beside another");
  EXPECT_EQ(fault_of("fragment F on Q { a }"), "the document has no operation");
  EXPECT_EQ(fault_of(""), "the document has no operation");
  EXPECT_EQ(fault_of("# nothing\n"), "the document has no operation");
}

TEST(GraphqlDocument, LexicalGrammar) {
  EXPECT_THAT(
      read("\xEF\xBB\xBF{a,,,# { b\n c(s: \"\\\"\\u0041 }\", t: \"\"\" { \\\"\"\" } \"\"\", f: -1.5e-3, e: RED, l: [1 [2]], o: {})}")
          .fields,
      ElementsAre("a", "c"));
  for (const std::string text : {"{ a(x: 01) }",
                                 "{ a(x: 1.) }",
                                 "{ a(x: 1a) }",
                                 "{ a(x: -) }",
                                 "{ a(x: \"b\nc\") }",
                                 "{ a(x: \"\\q\") }",
                                 "{ a(x: \"\"\"b) }",
                                 "{ a(x: \"\\u00\") }",
                                 "{ a; b }",
                                 "{ a(x: 'b') }",
                                 "{ .. }",
                                 "{ \xC3\xA9 }",
                                 "query { a",
                                 "query { }",
                                 "{ a() }",
                                 "{ a: }",
                                 "{ ...on }",
                                 "query ($a) { b }",
                                 "query ($a: ) { b }",
                                 "query { a } type Q { a: Int }",
                                 "extend type Q { a: Int }",
                                 "{ a } }",
                                 "query A B { a }",
                                 "fragment on on Q { a } { b }",
                                 "{ a @ }",
                                 "{ a(x: $) }",
                                 "schema { query: Q }",
                                 "\"text\" query { a }"}) {
    EXPECT_FALSE(read_graphql_document(text, "").ok()) << text;
  }
  EXPECT_FALSE(read_graphql_document(std::string_view{"{ a \0 }", 7}, "").ok());
}

TEST(GraphqlDocument, BoundsHoldAtTheirBorder) {
  const auto nested = [](std::size_t depth) {
    std::string out;
    for (std::size_t i = 0; i < depth; ++i) out += "{a";
    return out + std::string(depth, '}');
  };
  EXPECT_TRUE(read_graphql_document(nested(kMaxGraphqlDepth), "").ok());
  EXPECT_EQ(fault_of(nested(kMaxGraphqlDepth + 1)), "the document is nested too deeply");
  EXPECT_EQ(fault_of("{ a(x: " + std::string(100'000, '[')), "the document is nested too deeply");
  const auto wide = [](std::size_t tokens) {
    std::string out = "{";
    for (std::size_t i = 2; i < tokens; ++i) out += " a";
    return out + "}";
  };
  EXPECT_TRUE(read_graphql_document(wide(kMaxGraphqlTokens), "").ok());
  EXPECT_EQ(fault_of(wide(kMaxGraphqlTokens + 1)), "the document has too many tokens");
}

const std::vector<std::string_view> kJson{"application/json"};

GraphqlContent post(std::string_view body, const std::vector<std::string_view>& type = kJson, const Query& query = {}) {
  return classify_graphql("POST", query, {type, {}}, body);
}
GraphqlContent get(const Query& query, std::string_view body = "") { return classify_graphql("GET", query, {}, body); }

TEST(GraphqlRequest, L7_04_PostAndBatch) {
  const auto one = post(R"({"query":"query Q { viewer }","operationName":"Q","variables":{"a":[1]},"extensions":null})");
  ASSERT_EQ(one.error, "");
  ASSERT_EQ(one.operations.size(), 1U);
  EXPECT_EQ(one.operations[0].type, "query");
  EXPECT_EQ(one.operations[0].name, "Q");
  EXPECT_FALSE(one.operations[0].persisted);
  const auto batch = post(R"([{"query":"{a}"},{"query":"mutation{b}"}])");
  ASSERT_EQ(batch.operations.size(), 2U);
  EXPECT_EQ(batch.operations[1].type, "mutation");
  EXPECT_EQ(post("[]").error, "GraphQL batch is empty");
  EXPECT_EQ(post(R"([{"query":"{a}"},{"query":"{"}])").operations.size(), 0U) << "one bad item refuses the batch";
  EXPECT_EQ(post(R"([{"query":"{a}"},7])").error, "GraphQL request is not a JSON object");
}

TEST(GraphqlRequest, PersistedQueries) {
  const auto by_hash = post(R"({"extensions":{"persistedQuery":{"version":1,"sha256Hash":"abc"}}})");
  ASSERT_EQ(by_hash.error, "");
  EXPECT_TRUE(by_hash.operations[0].persisted);
  EXPECT_EQ(by_hash.operations[0].persisted_hash, "abc");
  EXPECT_EQ(by_hash.operations[0].type, "");
  EXPECT_EQ(post(R"({"documentId":"d1"})").operations[0].persisted_id, "d1");
  EXPECT_EQ(post(R"({"queryId":"q1","id":"q1"})").operations[0].persisted_id, "q1");
  EXPECT_EQ(post(R"({"queryId":"q1","id":"q2"})").error, "GraphQL request has several persisted query identifiers");
  EXPECT_EQ(post("{}").error, "GraphQL request has no query document or persisted query identifier");
  EXPECT_EQ(post(R"({"query":null,"id":null})").error, "GraphQL request has no query document or persisted query identifier");
  // The registration of a persisted query carries both; the hash has to be that of the text (printf '{a}' | sha256sum).
  const auto registration = [](std::string_view hash) {
    return post(R"({"query":"{a}","extensions":{"persistedQuery":{"sha256Hash":")" + std::string{hash} + R"("}}})");
  };
  EXPECT_EQ(registration("460c3a93211614ac783c0f1d1bbbcb45a6da87d6421b5c0771772588f1015ff8").operations.at(0).type, "query");
  EXPECT_EQ(registration("00").error, "GraphQL persisted query hash is not that of the query document");
  EXPECT_EQ(post(R"({"query":"{a}","id":"deleteAll"})").error,
            "GraphQL request has both a query document and a persisted query identifier");
}

TEST(GraphqlRequest, D47f_TwoReadersWouldDisagree) {
  EXPECT_EQ(post(R"({"query":"{a}","query":"mutation{b}"})").error, "duplicate key in JSON object");
  EXPECT_THAT(post(R"({"query":"{a}","Query":"mutation{b}"})").error, HasSubstr("in case only"));
  EXPECT_THAT(post(R"({"query":"{a}"})", kJson, {{"query", "mutation{b}"}}).error, HasSubstr("in its URL"));
  EXPECT_THAT(post(R"({"query":"{a}"})", kJson, {{"OPERATIONNAME", "x"}}).error, HasSubstr("in its URL"));
  EXPECT_EQ(post(R"({"query":"{a}"})", kJson, {{"page", "1"}}).error, "");
  EXPECT_EQ(post(R"({"query":"{a}"})", {"text/plain"}).error, "Content-Type is not JSON");
  EXPECT_EQ(post(R"({"query":"{a}"})", {"multipart/form-data; boundary=x"}).error, "Content-Type is not JSON");
  EXPECT_EQ(post(R"({"query":"{a}"})", {}).error, "exactly one Content-Type is needed");
  EXPECT_EQ(post(R"({"query":"{a}"})", {"application/json", "application/json"}).error, "exactly one Content-Type is needed");
  EXPECT_EQ(post(R"({"query":"{a}"})", {"Application/JSON; Charset=\"UTF-8\""}).error, "");
  EXPECT_EQ(post(R"({"query":"{a}"})", {"application/graphql+json"}).error, "");
  EXPECT_EQ(post(R"({"query":"{a}"})", {"application/json; charset=utf-7"}).error, "charset other than UTF-8 is not supported");
  EXPECT_EQ(classify_graphql("POST", {}, {kJson, {"gzip"}}, R"({"query":"{a}"})").error,
            "Content-Encoding other than identity is not supported");
  EXPECT_EQ(classify_graphql("POST", {}, {kJson, {"identity"}}, R"({"query":"{a}"})").error, "");
  for (const auto* body :
       {"", "{", "query { a }", R"({"query":7})", R"({"query":"{a}"} x)", R"({"query":"{a}","operationName":7})",
        R"({"query":"{a}","extensions":[]})", R"({"query":"{a}","extensions":{"persistedQuery":{"sha256Hash":1}}})", "7"}) {
    EXPECT_NE(post(body).error, "") << body;
  }
}

TEST(GraphqlRequest, Get) {
  EXPECT_EQ(get({{"query", "query A{a} query B{b}"}, {"operationName", "B"}, {"variables", "{}"}}).operations[0].name, "B");
  EXPECT_EQ(get({{"query", "{a}"}, {"query", "mutation{b}"}}).error, R"(GraphQL GET parameter "query" must not appear more than once)");
  EXPECT_EQ(get({{"query", "{a}"}, {"operationName", ""}, {"operationName", ""}}).error,
            R"(GraphQL GET parameter "operationName" must not appear more than once)");
  EXPECT_EQ(get({{"id", "a"}, {"queryId", "a"}}).error, "GraphQL request has several persisted query identifiers");
  EXPECT_EQ(get({{"extensions", R"({"persistedQuery":{"sha256Hash":"h"}})"}}).operations[0].persisted_hash, "h");
  EXPECT_EQ(get({{"query", "{a}"}, {"extensions", "{"}}).error, R"(GraphQL GET parameter "extensions" is invalid JSON)");
  EXPECT_THAT(get({{"Query", "{a}"}}).error, HasSubstr("in case only"));
  EXPECT_EQ(get({{"query", "{a}"}}, "{}").error, "GraphQL GET request has a body");
  EXPECT_EQ(classify_graphql("PUT", {}, {}, "").error, "unsupported GraphQL HTTP method PUT");
  EXPECT_EQ(classify_graphql("HEAD", {}, {}, "").error, "unsupported GraphQL HTTP method HEAD");
}

TEST(GraphqlRequest, ABatchHasABound) {
  const auto batch = [](std::size_t size) {
    std::string out = "[";
    for (std::size_t i = 0; i < size; ++i) out += std::string{i == 0 ? "" : ","} + R"({"query":"{a}"})";
    return out + "]";
  };
  EXPECT_EQ(post(batch(kMaxGraphqlBatch)).error, "");
  EXPECT_EQ(post(batch(kMaxGraphqlBatch + 1)).error, "GraphQL batch has too many operations");
}

TEST(GraphqlMessages, ControlOperationAndEverythingElse) {
  for (const auto* type : {"connection_init", "connection_terminate", "ping", "pong", "complete", "stop"}) {
    const auto message = classify_graphql_message(std::string{R"({"payload":{"x":[1]},"type":")"} + type + R"("})");
    EXPECT_TRUE(message.control) << type;
    EXPECT_EQ(message.content.error, "") << type;
  }
  for (const auto* type : {"subscribe", "start"}) {
    const auto message =
        classify_graphql_message(std::string{R"({"id":"1","payload":{"query":"subscription{a}"},"type":")"} + type + R"("})");
    EXPECT_FALSE(message.control);
    ASSERT_EQ(message.content.error, "");
    EXPECT_EQ(message.content.operations[0].type, "subscription");
  }
  for (const auto* text :
       {"", "x", "[]", R"({"type":1})", R"({"id":"1"})", R"({"type":"next","id":"1"})", R"({"type":"subscribe","payload":{"query":"{a}"}})",
        R"({"type":"subscribe","id":"","payload":{"query":"{a}"}})", R"({"type":"subscribe","id":1,"payload":{"query":"{a}"}})",
        R"({"type":"subscribe","id":"1","payload":[{"query":"{a}"}]})", R"({"type":"subscribe","id":"1"})",
        R"({"type":"subscribe","id":"1","payload":{"query":"{"}})", R"({"type":"ping","type":"subscribe"})",
        R"({"type":"ping","Type":"subscribe"})", R"({"type":"Subscribe","id":"1","payload":{"query":"{a}"}})"}) {
    const auto message = classify_graphql_message(text);
    EXPECT_FALSE(message.control) << text;
    EXPECT_NE(message.content.error, "") << text;
  }
}

}  // namespace
}  // namespace openshell::policy
