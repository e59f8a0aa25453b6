// The change that an explanation offers is one that a person can type: applied, it allows what was refused. For random policies.
#include <gtest/gtest.h>

#include <random>

#include "cli/merge_words.hpp"
#include "openshell.pb.h"
#include "policy/explanation.hpp"
#include "policy/merge.hpp"
#include "policy/parse.hpp"
#include "policy/validate.hpp"

namespace openshell::cli {
namespace {

namespace sb = openshell::sandbox::v1;
using policy::Decision;
using policy::Question;

/// Words as a shell splits them; quotes as the explanation writes them.
std::vector<std::string> shell_words(const std::string& line) {
  std::vector<std::string> out;
  std::string word;
  bool quoted = false, begun = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '\'') {
      quoted = !quoted;
      begun = true;
    } else if (c == '\\' && !quoted) {
      word += line.at(++i);
    } else if (c == ' ' && !quoted) {
      if (begun) out.push_back(word);
      word.clear();
      begun = false;
    } else {
      word += c;
      begun = true;
    }
  }
  if (begun) out.push_back(word);
  return out;
}

/// `openshell policy update ...` as the command line does it.
sb::SandboxPolicy updated(const sb::SandboxPolicy& base, const std::string& line) {
  MergeWords words;
  const auto all = shell_words(line);
  for (std::size_t i = 3; i < all.size(); ++i) {
    const auto& flag = all[i];
    if (flag == "--any-binary") {
      words.any_binary = true;
      continue;
    }
    const auto& value = all.at(++i);
    if (flag == "--rule-name") words.rule_name = value;
    if (flag == "--binary") words.binaries.push_back(value);
    if (flag == "--add-endpoint") words.add_endpoints.push_back(value);
    if (flag == "--add-allow") words.add_allow.push_back(value);
    if (flag == "--endpoint-path") words.endpoint_path = value;
  }
  policy::MergeOperations operations;
  EXPECT_TRUE(add_operations(words, operations).ok()) << line;
  const auto merged = policy::merge(base, operations);
  EXPECT_TRUE(merged.ok()) << line << "\n" << merged.status();
  return merged.ok() ? merged->policy : base;
}

/// `add to network_policies.KEY[.binaries | .endpoints[i].rules]: FRAGMENT`, typed into the file.
sb::SandboxPolicy typed(sb::SandboxPolicy base, const std::string& text) {
  const std::string prefix = "add to network_policies.";
  EXPECT_TRUE(text.starts_with(prefix)) << text;
  const auto colon = text.find(": ");
  const auto path = text.substr(prefix.size(), colon - prefix.size());
  const auto fragment = text.substr(colon + 2);
  const auto read = [](const std::string& rule) {
    auto parsed = policy::parse_policy("version: 1\nnetwork_policies: {r: " + rule + "}\n");
    EXPECT_TRUE(parsed.ok()) << rule << parsed.diagnostics.render();
    return parsed.ok() ? parsed.policy->network_policies().at("r") : sb::NetworkPolicyRule{};
  };
  if (path.ends_with(".binaries")) {
    const auto key = path.substr(0, path.size() - 9);
    *base.mutable_network_policies()->at(key).add_binaries() = read("{endpoints: [], binaries: [" + fragment + "]}").binaries(0);
  } else {
    auto rule = read(fragment);
    (*base.mutable_network_policies())[path] = rule;
  }
  return base;
}

TEST(ExplainChange, AppliedItAllowsWhatWasRefused) {
  std::mt19937 random{7};
  const auto any = [&](std::initializer_list<const char*> from) { return std::string{*(from.begin() + random() % from.size())}; };
  const auto endpoint = [&] {
    const auto protocol = any({"", ", protocol: rest, enforcement: enforce, access: read-only", ", protocol: rest, access: read-only",
                               ", protocol: rest, enforcement: enforce, rules: [{allow: {method: GET, path: '/v1/**'}}]",
                               ", protocol: rest, enforcement: enforce, access: full, deny_rules: [{method: POST, path: '/v1/no'}]"});
    return "{host: " + any({"a.x.test", "b.x.test", "'*.x.test'"}) + ", " + any({"port: 443", "ports: [443, 8443]"}) + protocol + "}";
  };
  std::size_t lines = 0, fragments = 0;
  for (int round = 0; round < 3'000; ++round) {
    std::string text = "version: 1\nnetwork_policies:\n";
    for (int i = 0; i <= static_cast<int>(random() % 3); ++i) {
      text += "  " + any({"it's", "plain", "two words", "r"}) + std::to_string(i) + ": {endpoints: [" + endpoint() +
              (random() % 3 == 0 ? ", " + endpoint() : "") + "], binaries: " + any({"[]", "[/usr/bin/curl]", "[/usr/bin/curl, /opt/a b]"}) +
              "}\n";
    }
    auto loaded = policy::load_policy(text);
    if (!loaded.ok()) continue;  // two endpoints that disagree
    Question question{any({"a.x.test", "b.x.test", "c.test"}),
                      static_cast<std::uint16_t>(random() % 2 == 0 ? 443 : 8443),
                      any({"/usr/bin/curl", "/usr/bin/wget", "/opt/a b"}),
                      {},
                      {},
                      {},
                      false};
    if (random() % 3 != 0)
      question.request = Question::Http{any({"GET", "POST", "DELETE"}), any({"/v1/a", "/v2/it's", "/v1/no", "/"}), {}, {}, {}};
    const auto explained = policy::explain(*loaded.policy, question);
    ASSERT_TRUE(explained.ok()) << explained.status();
    const auto& change = explained->smallest_change;
    if (explained->judgement.decision == Decision::allow) {
      EXPECT_EQ(change, "");
      continue;
    }
    if (change.empty()) continue;  // a deny rule: it is never taken away
    const bool line = change.starts_with("openshell policy update ");
    ++(line ? lines : fragments);
    auto changed = line ? updated(*loaded.policy, change) : typed(*loaded.policy, change);
    ASSERT_TRUE(policy::admit(changed, policy::Provenance::keep).ok()) << text << change;
    const auto matcher = policy::Matcher::compile(changed);
    ASSERT_TRUE(matcher.ok()) << matcher.status();
    EXPECT_EQ(policy::judge(**matcher, question).decision, Decision::allow) << text << policy::describe(question) << "\n" << change;
  }
  EXPECT_GT(lines, 300U);
  EXPECT_GT(fragments, 100U);
}

}  // namespace
}  // namespace openshell::cli
