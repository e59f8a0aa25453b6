// The stream of DNS questions and answers.
#include "isolation/boundary/control.hpp"
#include "isolation/boundary/framing.hpp"

#include <cstdlib>

using namespace openshell::boundary;

namespace {
void check(std::string_view json) {
  if (auto question = decode_dns_question(json); question.ok()) {
    auto again = decode_dns_question(encode_dns_question(*question));
    if (!again.ok() || again->request != question->request) std::abort();
  }
  if (auto answer = decode_dns_answer(json); answer.ok() && !decode_dns_answer(encode_dns_answer(*answer)).ok()) std::abort();
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  MediationFrameDecoder decoder;
  for (std::size_t i = 0; i < bytes.size(); i += 7) {
    if (!decoder.append(bytes.substr(i, 7)).ok()) break;
    while (auto frame = decoder.next()) check(frame->json);
  }
  check(bytes);
  return 0;
}
