// Frames of a workload: any split of any bytes gives the same pieces or the same fault, every bound holds, and what goes on can be read
// again.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "egress/http/target.hpp"
#include "egress/websocket/frame.hpp"

namespace ws = openshell::egress::websocket;

static void require(bool holds) {
  if (!holds) std::abort();
}

struct Seen {
  std::string forwarded, texts, ending;
};

static Seen read_all(std::string_view bytes, std::size_t step) {
  ws::ClientFrames frames;
  Seen out;
  for (std::size_t at = 0; at < bytes.size(); at += step) {
    frames.append(bytes.substr(at, step));
    while (auto piece = frames.next()) {
      require(out.ending.empty() || piece->kind == ws::Piece::Kind::fault);
      switch (piece->kind) {
        case ws::Piece::Kind::forward:
          out.forwarded += piece->bytes;
          break;
        case ws::Piece::Kind::begin:
          require(frames.assembling());
          out.texts += "<";
          break;
        case ws::Piece::Kind::text:
          require(piece->bytes.size() <= ws::kMaxTextBytes && openshell::egress::http::is_valid_utf8(piece->bytes));
          out.texts += piece->bytes + ">";
          break;
        case ws::Piece::Kind::close:
          out.forwarded += piece->bytes;
          out.ending += "closed";
          break;
        case ws::Piece::Kind::fault:
          require(static_cast<bool>(piece->fault) && !frames.next());
          out.ending += piece->fault.word;
          break;
      }
    }
  }
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes{reinterpret_cast<const char*>(data), size};
  const auto whole = read_all(bytes, std::max<std::size_t>(size, 1)), single = read_all(bytes, 1);
  require(whole.forwarded == single.forwarded && whole.texts == single.texts && whole.ending == single.ending);
  // What goes upstream is again a row of frames without a fault.
  const auto again = read_all(whole.forwarded, std::max<std::size_t>(whole.forwarded.size(), 1));
  require(again.forwarded == whole.forwarded && again.texts.empty() && (again.ending.empty() || again.ending == "closed"));
  ws::FrameBoundaries server, bytewise;
  server.pass(bytes);
  for (const char byte : bytes) bytewise.pass({&byte, 1});
  require(server.between_frames() == bytewise.between_frames());
  return 0;
}
