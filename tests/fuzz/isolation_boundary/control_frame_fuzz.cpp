// Bytes of an Exchange stream up to and including its first frame, as request and as response: whatever is taken must mean the same after
// it was written again.
#include "isolation/boundary/control.hpp"
#include "isolation/boundary/framing.hpp"

#include <cstdlib>

using namespace openshell::boundary;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  ControlFrameDecoder decoder;
  std::string json(bytes);
  if (decoder.append(bytes.substr(0, size / 2)).ok() && decoder.append(bytes.substr(size / 2)).ok()) {
    if (auto frame = decoder.next()) json = *frame;
  }
  auto request = decode_request(json);
  if (const auto* envelope = std::get_if<RequestEnvelope>(&request)) {
    auto again = decode_request(encode_request(envelope->request_id, envelope->request));
    const auto* same = std::get_if<RequestEnvelope>(&again);
    if (same != nullptr && !(same->request == envelope->request)) std::abort();
  }
  if (auto response = decode_response(json); response.ok()) {
    auto again = decode_response(encode_response(response->request_id, response->response));
    if (!again.ok()) std::abort();
  }
  return 0;
}
