// Any text is a question, a test file or a record, or is refused with a message; what was accepted says the same when it is written and
// read again, and a written record holds no value in clear.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "policy/decision_record.hpp"
#include "policy/decision_tests.hpp"
#include "policy/question_document.hpp"

namespace policy = openshell::policy;

namespace {

void require(bool holds, const char* what, const std::string& detail) {
  if (holds) return;
  std::fprintf(stderr, "%s\n%s\n", what, detail.c_str());
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  const auto tests = policy::parse_decision_tests(text, "t");
  require(tests.ok() ? !tests->empty() : !tests.status().message().empty(), "neither tests nor an error", "");
  (void)policy::parse_record(text, "r");
  const auto question = policy::parse_question(text);
  if (!question.ok()) return 0;
  const auto json = policy::to_json(*question);
  const auto again = policy::parse_question(json);
  require(again.ok(), "what was written is refused", json);
  require(policy::to_json(*again) == json, "what was written means another question", json);
  const auto request = question->request ? policy::request_of(*question->request) : policy::Request{};
  const auto line =
      policy::record_line({}, 1, "h", {question->host, question->port, {question->binary, question->ancestors, question->cmdline_paths}},
                          question->request ? &request : nullptr, policy::Decision::deny);
  if (line.empty()) return 0;
  const auto record = policy::parse_record(line, "r");
  require(record.ok(), "a record is refused", line);
  if (!record->question.request) return 0;
  for (const auto& [name, value] : record->question.request->query) require(policy::is_hashed_value(value), "a value in clear", line);
  return 0;
}
