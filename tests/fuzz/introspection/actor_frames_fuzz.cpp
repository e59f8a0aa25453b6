// What a supervisor sends of its actors and of its sandbox's: any bytes, in pieces.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "actors/introspection/actor_frames.hpp"
#include "actors/introspection/shown_text.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace openshell;
  std::string_view rest{reinterpret_cast<const char*>(data), size};
  ActorsFrameDecoder decoder{kMaxActorsMessage};
  while (!rest.empty()) {
    const auto piece = rest.substr(0, 1 + static_cast<unsigned char>(rest.front()));
    rest.remove_prefix(piece.size());
    if (!decoder.append(piece).ok()) break;
    while (const auto message = decoder.next()) {
      actors_wire::ToGateway decoded;
      if (!decoded.ParseFromString(*message)) return 0;
      for (const auto& process : decoded.snapshot().processes()) {
        const auto actors = actors_of(process);
        if (actors.size() > kMaxActorsPerProcess) __builtin_trap();
        for (const auto& actor : actors) {
          if (actor.id.size() > kMaxShownId || actor.summary.size() > kMaxShownText || actor.rates.size() > kMaxShownRates)
            __builtin_trap();
          for (const auto* text : {&actor.id, &actor.parent, &actor.kind, &actor.summary, &actor.last_error}) {
            for (const char c : *text) {
              if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) __builtin_trap();
            }
            if (shown_text(*text) != *text) __builtin_trap();  // clean is clean
          }
        }
      }
    }
  }
  return 0;
}
