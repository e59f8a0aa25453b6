#include "isolation/boundary/framing.hpp"

#include <gtest/gtest.h>

namespace openshell::boundary {
namespace {

TEST(ControlFrames, AnyPiecesAndTheRestBelongsToTheStream) {
  const std::string bytes = encode_control_frame("{\"a\":1}") + "stream";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    ControlFrameDecoder decoder;
    std::optional<std::string> frame;
    for (std::size_t i = 0; i < bytes.size(); i += piece) {
      ASSERT_TRUE(decoder.append(std::string_view{bytes}.substr(i, piece)).ok());
      if (!frame) frame = decoder.next();
    }
    ASSERT_TRUE(frame);
    EXPECT_EQ(*frame, "{\"a\":1}");
    EXPECT_EQ(decoder.take_rest(), "stream");
  }
}

TEST(ControlFrames, BoundIsCheckedByTheHeader) {
  ControlFrameDecoder at;
  EXPECT_TRUE(at.append(std::string("\x00\x10\x00\x00", 4)).ok());  // 1,048,576
  ControlFrameDecoder above;
  EXPECT_FALSE(above.append(std::string("\x00\x10\x00\x01", 4)).ok());
  EXPECT_FALSE(above.append("x").ok());
  ControlFrameDecoder empty;
  EXPECT_FALSE(empty.append(std::string(4, '\0')).ok());
  const std::string largest(kMaxControlFrameBytes, 'j');
  ControlFrameDecoder whole;
  EXPECT_TRUE(whole.append(encode_control_frame(largest)).ok());
  EXPECT_EQ(whole.next(), largest);
}

TEST(ProcessFrames, AnyPiecesInOrder) {
  const std::string largest(kMaxProcessFrameBytes, 'o');
  const std::string bytes = encode_process_frame(Channel::stdout_data, largest) + encode_process_frame(Channel::stderr_data, "e") +
                            encode_process_frame(Channel::stdin_closed, "") + encode_process_frame(Channel::exit_status, "{}");
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, bytes.size()}) {
    ProcessFrameDecoder decoder;
    std::vector<ProcessFrame> frames;
    for (std::size_t i = 0; i < bytes.size(); i += piece) {
      ASSERT_TRUE(decoder.append(std::string_view{bytes}.substr(i, piece)).ok());
      while (auto frame = decoder.next()) frames.push_back(*frame);
    }
    ASSERT_EQ(frames.size(), 4u);
    EXPECT_EQ(frames[0], (ProcessFrame{Channel::stdout_data, largest}));
    EXPECT_EQ(frames[3], (ProcessFrame{Channel::exit_status, "{}"}));
    EXPECT_EQ(decoder.buffered(), 0u);
  }
}

TEST(ProcessFrames, UnknownChannelAndOversizeEndTheStream) {
  EXPECT_FALSE(ProcessFrameDecoder{}.append("\x06").ok());
  EXPECT_FALSE(ProcessFrameDecoder{}.append(std::string("\x01\x00\x01\x00\x01", 5)).ok());
  EXPECT_FALSE(ProcessFrameDecoder{}.append(std::string("\x04\x00\x00\x00\x01", 5)).ok());
  ProcessFrameDecoder later;
  EXPECT_TRUE(later.append(encode_process_frame(Channel::stdin_data, "x") + "\x07").ok());
  EXPECT_TRUE(later.next());
  EXPECT_FALSE(later.append("y").ok()) << "found when the frame before it is gone";
}

TEST(MediationFrames, RoundTripAndBounds) {
  const MediationFrame frame{MediationKind::dns_answer, 0x0102030405060708, std::string(kMaxMediationJsonBytes, 'x')};
  MediationFrameDecoder decoder;
  ASSERT_TRUE(decoder.append(encode_mediation_frame(frame)).ok());
  EXPECT_EQ(decoder.next(), frame);
  EXPECT_FALSE(decoder.next());
  EXPECT_FALSE(MediationFrameDecoder{}.append("\x07").ok());
  EXPECT_FALSE(MediationFrameDecoder{}.append(std::string("\x05\0\0\0\0\0\0\0\1\0\4\0\1", 13)).ok()) << "262145";
  EXPECT_FALSE(MediationFrameDecoder{}.append(std::string("\x05\0\0\0\0\0\0\0\1\0\0\0\0", 13)).ok());
}

}  // namespace
}  // namespace openshell::boundary
