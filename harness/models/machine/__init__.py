"""What the machine offers: devices, memory, placement of weights, and its errors."""
